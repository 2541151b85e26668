// The newest requests of the gateway: filters, one request's waterfall, replays.

const REQUESTS_EVERY_MS = 2_000;
const PAGE_SIZE = 100;
const MOST_TURNS = 500;
const OUTCOME_NAMES = ["exact", "joined", "semantic", "miss", "bypass", "error"];

function queryOf(filters, before) {
  const query = new URLSearchParams({limit: String(PAGE_SIZE)});
  for (const [name, value] of Object.entries(filters)) {
    if (value.trim()) query.set(name, value.trim());
  }
  if (before) query.set("before", before);
  return `/admin/requests?${query}`;
}

function Requests({models}) {
  const [filters, setFilters] = useState({model: "", tenant: "", session: "", outcome: "", slower_ms: ""});
  const [older, setOlder] = useState([]);
  const [live, setLive] = useState(true);
  const [chosen, setChosen] = useState(null);
  const before = older.at(-1);
  const poll = usePoll(queryOf(filters, before), live && !before ? REQUESTS_EVERY_MS : 0);
  const change = (name) => (event) => {
    setFilters({...filters, [name]: event.target.value});
    setOlder([]);
  };
  return html`<${Head} title="Requests"><label class="check"><input type="checkbox" checked=${live}
      onChange=${(event) => setLive(event.target.checked)} />Follow</label><//>
    <form class="row filters" onSubmit=${(event) => event.preventDefault()}>
      <${Field} label="Model"><input list="models" value=${filters.model} onInput=${change("model")} /><//>
      <datalist id="models">${models.map((model) => html`<option value=${model} />`)}</datalist>
      <${Field} label="Tenant"><input value=${filters.tenant} onInput=${change("tenant")} /><//>
      <${Field} label="Session"><input value=${filters.session} onInput=${change("session")} /><//>
      <${Field} label="Outcome"><select value=${filters.outcome} onChange=${change("outcome")}><option value="">all</option>
        ${OUTCOME_NAMES.map((name) => html`<option value=${name}>${name}</option>`)}</select><//>
      <${Field} label="Slower than, ms"><input inputmode="numeric" value=${filters.slower_ms} onInput=${change("slower_ms")} /><//>
    </form>
    <${Loaded} poll=${poll} what="The list tells what every tenant asks for: only administrators see it."
      missing="This server does not keep its newest requests.">${(data) => html`
      <div class=${chosen ? "split" : ""}>
        <div><${RequestTable} requests=${data.requests} chosen=${chosen} choose=${setChosen} />
          <div class="row pages"><small>${number(data.kept)} kept of ${number(data.seen)} since the start of this gateway</small>
            ${older.length > 0 && html`<button onClick=${() => setOlder(older.slice(0, -1))}>Newer</button>`}
            ${data.next && html`<button onClick=${() => setOlder([...older, data.next])}>Older</button>`}</div></div>
        ${chosen && html`<${OneRequest} request=${chosen} models=${models} choose=${setChosen} close=${() => setChosen(null)} />`}
      </div>`}<//>`;
}

/** Clients choose ids, and may choose one twice. */
function keyOf(request) {
  return `${request.id} ${request.at} ${request.total_ms}`;
}

function RequestTable({requests, chosen, choose}) {
  if (!requests.length) return html`<${Empty} title="No such requests">Ask something in the playground, or widen the filters.<//>`;
  const slowest = Math.max(...requests.map((each) => each.total_ms), 1);
  return html`<div class="scroll"><table class="grid log"><thead><tr><th scope="col">Time</th><th scope="col">Model</th>
    <th scope="col">Outcome</th><th scope="col">Tenant</th><th scope="col" class="num">First token</th><th scope="col" class="num">Whole</th>
    <th scope="col" class="num">Own</th><th scope="col" class="num">Tokens</th><th scope="col">Served by</th></tr></thead>
    <tbody>${requests.map((each) => html`<tr key=${keyOf(each)} class=${chosen && keyOf(chosen) === keyOf(each) ? "chosen" : ""} onClick=${() => choose(each)}>
      <th scope="row"><button class="link" aria-expanded=${Boolean(chosen && keyOf(chosen) === keyOf(each))} data-request=${each.id} data-outcome=${each.outcome}>${clock(each.at)}</button></th>
      <td>${each.model || each.path}</td><td><${Outcome} value=${each.outcome} />${each.status >= 400 ? html` <small>${each.status}</small>` : ""}</td>
      <td>${each.tenant || NOTHING}</td><td class="num">${ms(each.ttft_ms)}</td>
      <td class="num"><${Meter} value=${each.total_ms / slowest} label="share of the slowest shown" /> ${ms(each.total_ms)}</td>
      <td class="num">${ms(each.overhead_ms)}</td><td class="num">${number(each.output_tokens)}</td><td>${each.member || NOTHING}</td></tr>`)}
    </tbody></table></div>`;
}

function OneRequest({request, models, choose, close}) {
  const title = useRef(null);
  useEffect(() => { title.current.focus(); }, [keyOf(request)]);
  const session = usePoll(request.session ? `/admin/requests?limit=${MOST_TURNS}&session=${encodeURIComponent(request.session)}` : null, 0);
  const turns = request.session && session.data ? session.data.requests.toReversed() : [];
  const known = [["path", request.path], ["status", request.status], ["tenant", request.tenant], ["served by", request.member],
    ["session", request.session], ["experiment", request.experiment], ["error", request.error], ["finish", request.finish_reason], ["first token", ms(request.ttft_ms)],
    ["between tokens, mean", ms(request.itl_ms)], ["own overhead", ms(request.overhead_ms)],
    ["tokens in", number(request.input_tokens)], ["of these cached", number(request.cached_tokens)],
    ["tokens out", number(request.output_tokens)], ["accepted drafts", number(request.accepted_drafts)],
    ["similarity", request.cache_similarity && number(request.cache_similarity, 4)], ["score", request.cache_score && number(request.cache_score, 3)],
    ["trace", request.trace_id],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== NOTHING);
  return html`<section class="card detail" aria-label="One request" onKeyDown=${(event) => event.key === "Escape" && close()}>
    <div class="head"><h2 tabindex="-1" ref=${title}>${request.model || request.path} <${Outcome} value=${request.outcome} /></h2>
      <button aria-label="Close" onClick=${close}>✕</button></div>
    <p class="note"><code>${request.id}</code>, ${new Date(request.at * 1000).toLocaleString("en-GB")}</p>
    <${Waterfall} steps=${stepsOfRecord(request)} total=${request.total_ms} />
    <dl class="known">${known.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${turns.length > 1 && html`<h3>Turns of this session, and the share of their prompts that was cached${turns.length === MOST_TURNS ? ` (the newest ${MOST_TURNS})` : ""}</h3>
      <ol class="bars">${turns.map((turn) => html`<li><button class="link" onClick=${() => choose(turn)}>${clock(turn.at)}</button>
        <${Meter} value=${turn.input_tokens ? (turn.cached_tokens || 0) / turn.input_tokens : 0} label="cached share of the prompt" />
        ${share(turn.input_tokens ? (turn.cached_tokens || 0) / turn.input_tokens : null, 0)} of ${number(turn.input_tokens)}</li>`)}</ol>`}
    <${Replay} request=${request} models=${models} />
  </section>`;
}

function Replay({request, models}) {
  const [model, setModel] = useState(models.includes(request.model) ? request.model : models[0] || "");
  const [fresh, setFresh] = useState(true);
  const [answer, setAnswer] = useState(null);
  const asked = play.asked.get(request.id);
  if (!asked) {
    return html`<p class="note">Only requests of this tab's playground can be replayed: the gateway keeps no prompts.</p>`;
  }
  const replay = async () => {
    setAnswer({model, text: "", reasoning: "", headers: {}, isDone: false});
    const body = {...asked.body, model};
    const headers = fresh ? {...asked.headers, "cache-control": "no-cache"} : asked.headers;
    const done = await streamChat(body, headers, undefined, (each) => setAnswer({...each, model}));
    remember(done.id, body, headers);
    setAnswer({...done, model});
  };
  return html`<h3>Replay</h3><div class="row"><label class="unseen" for="replay-model">Model</label>
    <select id="replay-model" value=${model} onChange=${(event) => setModel(event.target.value)}>
      ${models.map((name) => html`<option value=${name} selected=${name === model}>${name}</option>`)}</select>
    <label class="check"><input type="checkbox" checked=${fresh} onChange=${(event) => setFresh(event.target.checked)} />without the cache</label>
    <button class="primary" onClick=${replay} disabled=${Boolean(answer && !answer.isDone)}>Replay</button></div>
    ${answer && html`<${Answer} answer=${answer} />`}`;
}
