// What `promptly plan` says of the running settings: memory, speed, and the replicas that a load needs.

const PLAN_FIELDS = [
  ["rate", "Requests/s", "of the load"], ["prompt_tokens", "Prompt, tokens", "mean; 1,000"],
  ["output_tokens", "Answer, tokens", "mean; 200"], ["ttft_ms", "First token, ms", "target; 1,000"],
  ["tpot_ms", "Per token, ms", "target; 100"], ["price", "Price", "of a device and hour"],
  ["device", "GPU", "default: settings"],
];

function Plan() {
  const [typed, setTyped] = useState({});
  const [asked, setAsked] = useState("");
  const poll = usePoll(`/admin/plan${asked}`, 0);
  const submit = (event) => {
    event.preventDefault();
    const given = Object.entries(typed).filter(([, value]) => value.trim());
    setAsked(given.length ? `?${new URLSearchParams(given)}` : "");
  };
  return html`<${Head} title="Plan"><small>The same as <code>promptly plan</code>: estimates, before anything is loaded</small><//>
    <form class="row filters" onSubmit=${submit}>
      ${PLAN_FIELDS.map(([name, label, hint]) => html`<${Field} label=${label} hint=${hint}><input name=${name} spellcheck=${false}
        inputmode=${name === "device" ? "text" : "decimal"} value=${typed[name] || ""}
        onInput=${(event) => setTyped({...typed, [name]: event.target.value})} /><//>`)}
      <button class="primary" type="submit">Plan this load</button></form>
    <${Loaded} poll=${poll} what="The plan is shown to administrators.">${(plan) => html`
      ${plan.models.length === 0 && html`<${Empty} title="Nothing to plan">No model has engines of its own here: all are served by upstreams.<//>`}
      ${plan.models.map((model) => html`<${PlannedModel} model=${model} />`)}
      ${plan.models.length > 0 && plan.others.length > 0 && html`<p class="note">Served by upstreams, so not planned here: ${plan.others.join(", ")}.</p>`}`}<//>
    <${Suggestions} />`;
}

/** What captured requests and feedback say to change. Nothing where none are kept. */
function Suggestions() {
  const poll = usePoll("/admin/suggestions", 0);
  if (!poll.data) return null;
  const {suggestions, captures, feedback} = poll.data;
  return html`<section class="card" data-suggestions=${suggestions.length}><h2>Suggestions</h2>
    <p class="note">From the newest ${number(captures)} captured requests and ${number(feedback)} pieces of feedback;
      the same as <code>promptly capture suggest</code>.</p>
    ${suggestions.length === 0 && html`<p>There is nothing to suggest.</p>`}
    ${suggestions.map((each) => html`<article><h3>${each.about}</h3><p>${each.advice}</p>
      <p class="note">${each.evidence} ${each.effect}</p></article>`)}</section>`;
}

function PlannedModel({model}) {
  const {min, max} = model.replicas || {};
  return html`<section class="card" data-plan=${model.id}><h2>${model.id}
      ${model.problems.length > 0 && html` <${Badge} kind="bad">would not start<//>`}
      ${!model.known && html` <${Badge} kind="near">not known here<//>`}</h2>
    <p class="note">${model.source}${model.known ? `, ${model.shape}, ${model.devices} × ${model.device || "a device that is not known"}, ${
      min === max ? number(max) : `${number(min)} to ${number(max)}`} replicas` : ""}</p>
    ${model.problems.map((problem) => html`<p class="error" role="alert">${problem.text}</p>`)}
    ${model.why && html`<p>${model.why}</p>`}
    ${model.known && html`<${PlannedFigures} model=${model} /><${PlannedMemory} memory=${model.memory} />
      ${model.notes.map((note) => html`<p class="note">${note}</p>`)}
      <details open><summary>The whole report</summary><pre class="report" tabindex="0">${[...model.report, ...(model.parsers || []).map((line) => `  ${line}`)].join("\n")}</pre></details>`}
  </section>`;
}

function PlannedFigures({model}) {
  const {speed} = model;
  return html`<div class="tiles"><${Tile} label="Longest request" value=${number(model.context)} note="tokens" />
    <${Tile} label="KV cache holds" value=${number(model.kv_tokens)} note="tokens, each replica" />
    <${Tile} label="Such requests at once" value=${number(model.requests_at_once, 1)} note="each replica" />
    <${Tile} label="Per token, alone" value=${ms(speed?.token_ms)} note=${speed && `${ms(speed.token_ms_of_32)} in a batch of 32`} />
    <${Tile} label="Prefill" value=${ms(speed?.prefill_ms)} note="per 1,000 tokens" /></div>
    ${!speed && html`<p class="note">Speed and room for the KV cache need a device: set <code>engine.accelerator_type</code>, or name a GPU above.</p>`}`;
}

function PlannedMemory({memory}) {
  const rows = [...Object.entries(memory.parts), ...(memory.kv_cache === null ? [] : [["KV cache", memory.kv_cache]])];
  const most = memory.usable || Math.max(...rows.map(([, size]) => size), 1e-9);
  return html`<h3>Memory of each device, GiB${memory.usable === null ? "" : ` of ${number(memory.usable, 2)} usable`}</h3>
    <div class="scroll"><table class="grid sizes"><tbody>${rows.map(([name, size]) => html`<tr><th scope="row">${name}</th>
      <td><${Meter} value=${size / most} label=${`${name}: share of the memory`} /></td><td class="num">${number(size, 2)}</td></tr>`)}</tbody></table></div>`;
}
