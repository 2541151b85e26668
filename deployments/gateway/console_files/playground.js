// The playground: talk to one model, or to two side by side, and see where the time went.

const CACHE_MODES = [
  ["", "Read and write", "as clients do by default"],
  ["no-cache", "Write only", "ask the model, keep its answer"],
  ["no-store", "Off", "neither read nor write"],
];
const EXAMPLES = ["What is the capital of France?", "Can you tell me the capital of France?", "Write a haiku about latency."];

/** What outlives a change of the page; nothing of it is stored. */
const play = {
  settings: {models: ["", ""], sideBySide: false, together: false, system: "", temperature: "0", topP: "", maxTokens: "256", seed: "",
    cache: "", threshold: "", ttl: ""},
  turns: [],
  draft: "",
  asked: new Map(),
};

const REMEMBERED = 200;

/** The newest requests of this tab by id, so that they can be replayed. The gateway keeps no prompts. */
function remember(id, body, headers) {
  if (!id) return;
  play.asked.set(id, {body, headers});
  if (play.asked.size > REMEMBERED) play.asked.delete(play.asked.keys().next().value);
}

function optional(name, text, read) {
  return text.trim() === "" || Number.isNaN(read(text)) ? {} : {[name]: read(text)};
}

function bodyOf(settings, model, turns, column) {
  const messages = settings.system.trim() ? [{role: "system", content: settings.system}] : [];
  for (const turn of settings.together ? turns : turns.slice(-1)) {
    messages.push({role: "user", content: turn.text});
    const answer = turn.answers[column];
    if (answer && answer.isDone && !answer.error) messages.push({role: "assistant", content: answer.text});
  }
  return {model, messages,
    ...optional("temperature", settings.temperature, Number), ...optional("top_p", settings.topP, Number),
    ...optional("max_tokens", settings.maxTokens, Number), ...optional("seed", settings.seed, Number)};
}

function headersOf(settings) {
  return {
    ...(settings.cache && {"cache-control": settings.cache}),
    ...(settings.threshold.trim() && {"x-cache-threshold": settings.threshold.trim()}),
    ...(settings.ttl.trim() && {"x-cache-ttl": settings.ttl.trim()}),
  };
}

function Playground({models}) {
  const [settings, setSettings] = useState(play.settings);
  const [turns, setTurns] = useState(play.turns);
  const [busy, setBusy] = useState(null);
  const [open, setOpen] = useState(matchMedia("(min-width: 900px)").matches);
  play.settings = settings;
  play.turns = turns;
  const columns = settings.sideBySide ? [0, 1] : [0];
  const chosen = (column) => settings.models[column] || models[column] || models[0] || "";
  const change = (name) => (event) => {
    const value = event.target.type === "checkbox" ? event.target.checked : event.target.value;
    setSettings((old) => ({...old, [name]: value}));
  };

  const ask = async (text) => {
    const controller = new AbortController();
    const turn = {text, answers: []};
    const all = [...play.turns, turn];
    setTurns(all);
    setBusy(controller);
    const headers = headersOf(settings);
    const show = (column) => (answer) => {
      turn.answers[column] = answer;
      setTurns([...all]);
    };
    await Promise.all(columns.map(async (column) => {
      const body = bodyOf(settings, chosen(column), all, column);
      show(column)({model: body.model, text: "", reasoning: "", headers: {}, isDone: false});
      const begun = Date.now();
      const answer = await streamChat(body, headers, controller.signal, (each) => show(column)({...each, model: body.model}));
      remember(answer.id, body, headers);
      show(column)({...answer, model: body.model, begun, question: text});
    }));
    setBusy(null);
  };

  return html`<div class="playground">
    <section class=${open ? "side open" : "side"} aria-label="Settings of the request">
      <button class="side-toggle" aria-expanded=${open} onClick=${() => setOpen(!open)}>Settings</button>
      ${open && html`<div class="side-body">
        ${columns.map((column) => html`<${Field} label=${columns.length > 1 ? `Model ${"AB"[column]}` : "Model"}>
          <select value=${chosen(column)} data-model=${column} onChange=${(event) => setSettings((old) => ({...old,
            models: old.models.map((each, index) => (index === column ? event.target.value : each))}))}>
            ${models.map((model) => html`<option value=${model} selected=${model === chosen(column)}>${model}</option>`)}
          </select><//>`)}
        <label class="check"><input type="checkbox" checked=${settings.sideBySide} onChange=${change("sideBySide")}
          id="side-by-side" />Two models side by side</label>
        <label class="check"><input type="checkbox" checked=${settings.together} onChange=${change("together")} id="together" />
          <span>Continue the conversation<small>sends the earlier turns too; else each message stands alone</small></span></label>
        <${Field} label="System prompt"><textarea rows="3" value=${settings.system} onInput=${change("system")}></textarea><//>
        <div class="pair">
          <${Field} label="Temperature"><input inputmode="decimal" value=${settings.temperature} onInput=${change("temperature")} /><//>
          <${Field} label="Top p"><input inputmode="decimal" placeholder="1" value=${settings.topP} onInput=${change("topP")} /><//>
          <${Field} label="Most tokens"><input inputmode="numeric" value=${settings.maxTokens} onInput=${change("maxTokens")} /><//>
          <${Field} label="Seed"><input inputmode="numeric" placeholder="none" value=${settings.seed} onInput=${change("seed")} /><//>
        </div>
        <fieldset><legend>Cache</legend>
          ${CACHE_MODES.map(([value, label, note]) => html`<label class="check"><input type="radio" name="cache"
            value=${value} checked=${settings.cache === value} onChange=${change("cache")} /><span>${label}
            <small>${note}</small></span></label>`)}
          <div class="pair">
            <${Field} label="Least similarity"><input inputmode="decimal" placeholder="server's" value=${settings.threshold}
              onInput=${change("threshold")} /><//>
            <${Field} label="Keep for, s"><input inputmode="numeric" placeholder="server's" value=${settings.ttl}
              onInput=${change("ttl")} /><//>
          </div>
        </fieldset>
      </div>`}
    </section>
    <section class="talk" aria-label="Conversation">
      <div class="turns" role="log" aria-label="Messages" tabindex="0">
        ${turns.length === 0 && html`<div class="welcome"><h1>See where the milliseconds go</h1>
          <p>Ask something, ask it again, then ask it in other words: the second answer comes from memory, the third from
            the semantic cache. Every answer shows its own timeline.</p>
          <div class="examples">${EXAMPLES.map((text) => html`<button onClick=${() => ask(text)} disabled=${!models.length}>
            ${text}</button>`)}</div></div>`}
        ${turns.map((turn) => html`<article class="turn">
          <div class="asked"><span class="who">You</span><p>${turn.text}</p></div>
          <div class=${`answers n${turn.answers.length}`}>${turn.answers.map((answer) => html`<${Answer} answer=${answer} />`)}</div>
        </article>`)}
      </div>
      <${Composer} busy=${busy} ask=${ask} canClear=${turns.length > 0} clear=${() => setTurns([])} ready=${models.length > 0} />
    </section>
  </div>`;
}

function Composer({busy, ask, clear, canClear, ready}) {
  const [text, setText] = useState(play.draft);
  const box = useRef(null);
  play.draft = text;
  useEffect(() => { if (matchMedia("(hover: hover)").matches) box.current.focus({preventScroll: true}); }, []);
  const submit = (event) => {
    event.preventDefault();
    if (busy || !text.trim() || !ready) return;
    ask(text.trim());
    setText("");
  };
  const key = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    if (event.key === "Escape" && busy) busy.abort();
  };
  return html`<form class="composer" data-ready=${ready ? "yes" : "no"} onSubmit=${submit}>
    <label class="unseen" for="prompt">Message</label>
    <textarea id="prompt" ref=${box} rows="2" placeholder="Ask the model … (Enter sends, Shift+Enter is a new line)"
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${key}></textarea>
    <div class="row">
      ${busy
        ? html`<button type="button" class="danger" onClick=${() => busy.abort()}>Stop</button>`
        : html`<button class="primary" type="submit" id="send" disabled=${!text.trim() || !ready}>Send</button>`}
      ${canClear && !busy && html`<button type="button" onClick=${clear}>Clear</button>`}
    </div>
  </form>`;
}

function Answer({answer}) {
  const box = useRef(null);
  useEffect(() => { if (!answer.isDone) box.current.scrollIntoView({block: "end"}); }, [answer.text.length]);
  useEffect(() => { if (answer.isDone) requestAnimationFrame(() => box.current?.scrollIntoView({block: "end"})); }, [answer.isDone]);
  return html`<div class="answer" ref=${box} data-done=${answer.isDone ? "yes" : "no"} data-cache=${answer.headers["x-cache"] || ""}>
    <div class="who">${answer.model}${answer.headers["x-model"] && ` → ${answer.headers["x-model"]}`}
      ${!answer.isDone && html`<span class="pulse" aria-label="is answering"></span>`}</div>
    ${answer.reasoning && html`<details class="reasoning"><summary>Reasoning</summary><p>${answer.reasoning}</p></details>`}
    <${Markdown} text=${answer.text} live=${!answer.isDone} />
    ${(answer.calls || []).filter(Boolean).map((tool) => html`<pre class="tool">${tool.name}(${tool.arguments})</pre>`)}
    ${answer.error && html`<p class="error" role="alert">${answer.error.message}</p>`}
    ${answer.finish === "stopped" && html`<p class="note">Stopped.</p>`}
    ${answer.isDone && !answer.error && html`<${Measured} answer=${answer} />`}
  </div>`;
}

function Measured({answer}) {
  const speed = tokensPerSecond(answer), headers = answer.headers, own = ownOverhead(headers["server-timing"]);
  const token = useToken();
  const [record, setRecord] = useState(null);
  useEffect(() => { if (token) recordOf(answer.id).then(setRecord); }, [answer.id, token]);
  const similarity = headers["x-cache-similarity"], score = headers["x-cache-score"];
  return html`<div class="measured">
    <ul class="facts">
      ${headers["x-cache"] && html`<li><${Outcome} value=${headers["x-cache"]} /></li>`}
      ${similarity && html`<li>similarity <b>${similarity}</b></li>`}
      ${score && html`<li>score <b>${score}</b></li>`}
      ${headers["x-cache-age"] && html`<li>made <b>${ago(Number(headers["x-cache-age"]))}</b></li>`}
      ${headers["x-cache-refused"] && html`<li title="Why a near entry was not used">near entry refused: <b>${headers["x-cache-refused"]}</b></li>`}
      <li>first token <b>${ms(answer.ttftMs)}</b></li>
      ${own !== null && html`<li title="The gateway's own steps: all that is not the engine">own overhead <b>${ms(own)}</b></li>`}
      <li>whole <b>${ms(answer.totalMs)}</b></li>
      ${speed !== null && headers["x-served-by"] !== "cache" && html`<li><b>${number(speed, speed < 100 ? 1 : 0)}</b> tok/s</li>`}
      <li><b>${number(answer.tokens)}</b> tokens${answer.promptTokens !== null && html` for <b>${number(answer.promptTokens)}</b>`}
        ${answer.cachedTokens ? html` (${number(answer.cachedTokens)} cached)` : ""}</li>
      ${headers["x-served-by"] && html`<li>by <b>${headers["x-served-by"]}</b></li>`}
    </ul>
    ${answer.begun && html`<${Thumbs} id=${answer.id} />`}
    ${headers["x-cache-entry"] && html`<${Judge} entry=${headers["x-cache-entry"]} text=${answer.question} />`}
    <details class="timing" open><summary>Timeline</summary>${record
      ? html`<${Waterfall} steps=${[...stepsOfRecord(record), {name: "seen by this browser", start: 0, duration: answer.totalMs, kind: "route"}]}
          caption="As the gateway recorded it, and as this browser saw it:" />`
      : html`<${Waterfall} steps=${stepsOf(answer)} total=${answer.totalMs} caption="Steps of the gateway, then what this browser saw:" />`}</details>
  </div>`;
}

/** Drawn, because not every machine has a font with emoji. */
const THUMB = "M8 21H4V10h4zM8 10l4-7c2 0 3 1 3 3l-1 4h6l-2 11H8z";

/** What the person who asked says of the answer. Hidden where no feedback is kept. */
function Thumbs({id}) {
  const [score, setScore] = useState(null);
  const [words, setWords] = useState("");
  const [error, setError] = useState(null);
  const say = async (value, text) => {
    try {
      await call("/v1/feedback", {method: "POST", body: {request_id: id, score: value, ...(text && {text})}});
      setError(null);
      setScore(value);
    } catch (failure) { setError(failure); }
  };
  if (error && error.code === "no_feedback") return html`<p class="note">This server keeps no feedback.</p>`;
  const thumb = (value, label) => html`<button class="small icon" data-thumb=${value} aria-label=${label} title=${label}
    aria-pressed=${score === value ? "true" : "false"} onClick=${() => say(value)}>
      <svg viewBox="0 0 24 24" aria-hidden="true"><path d=${THUMB} /></svg></button>`;
  return html`<form class="row thumbs" onSubmit=${(event) => { event.preventDefault(); say(score, words.trim()); setWords(""); }}>
    ${thumb(1, "Good answer")}${thumb(0, "Bad answer")}
    ${score === 0 && html`<label class="unseen" for=${`why-${id}`}>What is wrong?</label>
      <input id=${`why-${id}`} placeholder="What is wrong?" maxlength="4000" value=${words} onInput=${(event) => setWords(event.target.value)} />
      <button class="small" type="submit" disabled=${!words.trim()}>Say so</button>`}
    ${score !== null && html`<span class="judged" role="status">Noted.</span>`}
    ${error && html`<span class="error" role="alert">${error.message}</span>`}</form>`;
}

/** A person's verdict on a semantic hit. */
function Judge({entry, text, onJudged}) {
  const [said, setSaid] = useState("");
  const [error, setError] = useState(null);
  const token = useToken();
  useEffect(() => setError(null), [token]);
  const judge = async (right) => {
    try {
      const report = await call("/admin/cache/feedback", {method: "POST", body: {entry, right}});
      setError(null);
      setSaid(right ? "Noted: the answer fits." : report.dropped ? "Reported: the entry is dropped." : "Reported.");
      if (onJudged) onJudged(right);
    } catch (failure) { setError(failure); }
  };
  if (error && error.needsSignIn) return html`<${SignIn} error=${error} what="Judging an answer is for administrators." />`;
  if (said) return html`<p class="judged" role="status">${said}</p>`;
  return html`<div class="row judge"><span>Does this answer fit${text ? html` “${text}”` : ""}?</span>
    <button class="small" onClick=${() => judge(true)}>It fits</button>
    <button class="small danger" onClick=${() => judge(false)}>Wrong answer</button>
    ${error && html`<span class="error" role="alert">${error.message}</span>`}</div>`;
}
