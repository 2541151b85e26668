// Where the milliseconds of one request went.

const STEP_KINDS = [
  [/^(engine-queue|queue|wait|slot)/, "queue", "waiting for room"],
  [/^(prefill|first|engine|upstream-ttft|joined)/, "engine", "the engine, until its first token"],
  [/^(admit|body|auth|parse)/, "own", "checks of the request"],
  [/^(exact|memory|embed|search|decide|decision|look|cache|race|ask-model|store)/, "cache", "the cache"],
  [/^(upstream|decode|stream|relay|last|tokens)$/, "decode", "tokens"],
  [/^(route|place|connect|upstream|send|attempt)/, "route", "on the way to the engine"],
];

function kindOf(name) {
  const found = STEP_KINDS.find(([pattern]) => pattern.test(name));
  return found ? found[1] : "own";
}

const SUMS = new Set(["overhead", "total"]);
const ENGINE_PARTS = ["engine-queue", "prefill", "decode"];
const FIRST_BYTE = "upstream-ttft";

/** `Server-Timing` as {name: ms}; of steps with one name the sum. */
function durationsOf(header) {
  const durations = new Map();
  for (const part of (header || "").split(",")) {
    const found = /^\s*([\w-]+)\s*;.*\bdur=([\d.]+)/.exec(part);
    if (found) durations.set(found[1], (durations.get(found[1]) ?? 0) + Number(found[2]));
  }
  return durations;
}

/** `Server-Timing` as steps. It has durations only: the gateway's own follow one another, and the engine's parts lie
 * around the first byte that it sent. */
function stepsOfServerTiming(header) {
  const durations = durationsOf(header);
  const steps = [];
  let at = 0;
  for (const [name, duration] of durations) {
    if (SUMS.has(name) || ENGINE_PARTS.includes(name)) continue;
    steps.push({name, start: at, duration});
    at += duration;
  }
  const first = steps.find((step) => step.name === FIRST_BYTE);
  if (first) steps.splice(steps.indexOf(first) + 1, 0, ...enginePartsOf(durations, first));
  return steps;
}

function enginePartsOf(durations, first) {
  const [queue, prefill, decode] = ENGINE_PARTS.map((name) => durations.get(name));
  const token = first.start + first.duration, scheduled = token - (prefill ?? 0);
  return [["engine-queue", scheduled - (queue ?? 0), queue], ["prefill", scheduled, prefill], ["decode", token, decode]]
    .filter(([, , duration]) => duration !== undefined)
    .map(([name, start, duration]) => ({name, start: Math.max(start, first.start), duration}));
}

/** Steps in ms from the request's start: [{name, start, duration}]. */
function Waterfall({steps, total, caption}) {
  const whole = Math.max(total || 0, ...steps.map((step) => step.start + step.duration), 0.001);
  return html`<figure class="waterfall"><figcaption>${caption || "Where the time went"} <b>${ms(whole)}</b></figcaption>
    <table><thead class="unseen"><tr><th scope="col">step</th><th scope="col">when</th><th scope="col">time</th></tr></thead>
    <tbody>${steps.map((step) => html`<tr title=${`${step.name}: ${ms(step.duration)}, from ${ms(step.start)}`}>
      <th scope="row">${step.name}</th>
      <td class="track"><span class=${`span ${step.kind || kindOf(step.name)}`} style=${{
        marginLeft: `${(100 * step.start) / whole}%`,
        width: `${Math.max(0.4, (100 * step.duration) / whole)}%`,
      }}></span></td>
      <td class="num">${ms(step.duration)}</td></tr>`)}</tbody></table></figure>`;
}
