// One chat, streamed: what it says and when.

const CACHE_HEADERS = ["x-cache", "x-cache-age", "x-cache-similarity", "x-cache-score", "x-cache-entry", "x-cache-refused",
  "x-cache-stale", "x-served-by", "x-model", "x-request-id", "server-timing"];

/** Names a request, so that it is found again among all requests. */
function newId() {
  return `console-${Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Calls `progress(answer)` as it grows. Resolves with the finished answer; errors of the stream are in it. */
async function streamChat(body, headers, signal, progress) {
  const began = performance.now();
  const id = newId();
  const answer = {id, text: "", reasoning: "", calls: [], headers: {}, tokens: 0, promptTokens: null, cachedTokens: null,
    headMs: null, ttftMs: null, totalMs: null, finish: null, error: null, isDone: false};
  const asked = {...body, stream: true, stream_options: {include_usage: true}};
  try {
    const response = await send("/v1/chat/completions", {
      method: "POST", body: asked, headers: {...headers, "x-debug-timing": "1", "x-request-id": id}, signal});
    answer.headMs = performance.now() - began;
    for (const name of CACHE_HEADERS) {
      if (response.headers.has(name)) answer.headers[name] = response.headers.get(name);
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) readLine(answer, line, began);
      answer.totalMs = performance.now() - began;
      progress({...answer});
    }
  } catch (error) {
    if (error.name !== "AbortError") answer.error = error;
    else answer.finish = "stopped";
  }
  answer.totalMs = performance.now() - began;
  answer.isDone = true;
  return answer;
}

function readLine(answer, line, began) {
  if (line.startsWith(":")) {
    const found = /^:\s*server-timing:\s*(.+)$/.exec(line);
    if (found) answer.headers["server-timing"] = found[1];
    return;
  }
  if (!line.startsWith("data:") || line.slice(5).trim() === "[DONE]") return;
  let chunk;
  try { chunk = JSON.parse(line.slice(5)); } catch { return; }
  if (chunk.error) { answer.error = new ApiError(200, chunk.error.code, chunk.error.message); return; }
  if (chunk.usage) {
    answer.tokens = chunk.usage.completion_tokens ?? answer.tokens;
    answer.promptTokens = chunk.usage.prompt_tokens ?? null;
    answer.cachedTokens = chunk.usage.prompt_tokens_details?.cached_tokens ?? null;
    answer.hasUsage = true;
  }
  for (const choice of chunk.choices || []) {
    const delta = choice.delta || {};
    const content = delta.content || "", thought = delta.reasoning || delta.reasoning_content || "";
    if (content || thought || delta.tool_calls) {
      answer.ttftMs ??= performance.now() - began;
      if (!answer.hasUsage) answer.tokens += 1;
    }
    answer.text += content;
    answer.reasoning += thought;
    for (const call of delta.tool_calls || []) addCall(answer.calls, call);
    answer.finish = choice.finish_reason || answer.finish;
  }
}

function addCall(calls, part) {
  const call = (calls[part.index || 0] ??= {name: "", arguments: ""});
  call.name += part.function?.name || "";
  call.arguments += part.function?.arguments || "";
}

/** Tokens per second after the first one. */
function tokensPerSecond(answer) {
  const seconds = (answer.totalMs - answer.ttftMs) / 1000;
  return answer.ttftMs !== null && answer.tokens > 1 && seconds > 0.002 ? (answer.tokens - 1) / seconds : null;
}

const UPSTREAM_STEP = /^(upstream|joined|ask-model|engine-queue|prefill|decode)/;

/** Milliseconds of the gateway's own work: as it says, or its steps until the first byte; `null` if it says nothing. */
function ownOverhead(header) {
  const durations = durationsOf(header);
  if (durations.has("overhead")) return durations.get("overhead");
  const own = [...durations].filter(([name]) => !UPSTREAM_STEP.test(name));
  return own.length ? own.reduce((total, [, duration]) => total + duration, 0) : null;
}

/** Server steps as the header tells them, then what this browser saw. */
function stepsOf(answer) {
  const server = stepsOfServerTiming(answer.headers["server-timing"]);
  const before = server.filter((step) => !["upstream", "decode", "store"].includes(step.name));
  const end = before.reduce((latest, step) => Math.max(latest, step.start + step.duration), 0);
  const steps = [...server];
  if (answer.headMs !== null && answer.headMs > end) {
    steps.push({name: "network and browser", start: end, duration: answer.headMs - end, kind: "route"});
  }
  if (answer.ttftMs !== null) {
    const from = Math.max(answer.ttftMs, end);
    steps.push({name: "tokens, as they came", start: from, duration: Math.max(0, answer.totalMs - from), kind: "decode"});
  }
  return steps;
}

/** The gateway's record of a request, with the true start of each step; `null` for who may not see it. */
async function recordOf(id) {
  for (const wait of [50, 400, 1500]) {
    await new Promise((done) => setTimeout(done, wait));
    try {
      const found = await call(`/admin/requests?id=${encodeURIComponent(id)}`);
      if (found.requests.length) return found.requests[0];
    } catch { return null; }
  }
  return null;
}

function stepsOfRecord(record) {
  return record.steps.map((step) => ({name: step.name, start: step.start_ms, duration: step.duration_ms}));
}
