// The cache: how it does, hits to judge, entries, purges.

const CACHE_EVERY_MS = 3_000;
const SHOWN_APART = new Set(["entries", "exact", "semantic", "misses", "reported_wrong", "reported_right", "epoch"]);
const SELECT_BY = ["model", "tag", "tenant", "id"];

function CachePage() {
  const stats = usePoll("/admin/cache", CACHE_EVERY_MS);
  return html`<${Head} title="Cache"><//>
    <${Loaded} poll=${stats} what="The cache holds what others asked: only administrators see it."
      missing="This server runs without a cache (the section \`cache\` of its settings).">${(data) => html`
      <${CacheNumbers} stats=${data} /><${NearHits} /><${Entries} again=${stats.again} />`}<//>`;
}

function CacheNumbers({stats}) {
  const rest = Object.entries(stats).filter(([name, value]) => typeof value === "number" && !SHOWN_APART.has(name));
  const hits = (stats.exact ?? 0) + (stats.semantic ?? 0), answered = hits + (stats.misses ?? 0);
  const refused = Object.entries(stats.refused || {}).sort(([, one], [, two]) => two - one);
  return html`<section class="card"><h2>State <${Badge} kind=${stats.state === "ok" ? "good" : "bad"}>${stats.state}<//>
      ${stats.breaker_open && html` <${Badge} kind="bad">breaker open<//>`}</h2>
    ${stats.trouble && html`<p class="error" role="alert">${stats.trouble}</p>`}
    <div class="tiles"><${Tile} label="Entries" value=${number(stats.entries)} />
      <${Tile} label="Hit rate" value=${share(answered ? hits / answered : null)} note="since the start" />
      <${Tile} label="Exact hits" value=${number(stats.exact)} /><${Tile} label="Semantic hits" value=${number(stats.semantic)} />
      <${Tile} label="Misses" value=${number(stats.misses)} />
      <${Tile} label="Reported wrong" value=${number(stats.reported_wrong)} note=${`${number(stats.reported_right)} right`} /></div>
    <ul class="facts">${rest.map(([name, value]) => html`<li>${name.replaceAll("_", " ")} <b>${number(value)}</b></li>`)}</ul>
    ${refused.length > 0 && html`<details><summary>Near entries that were refused, by reason</summary>
      <ul class="facts">${refused.map(([reason, count]) => html`<li>${reason} <b>${number(count)}</b></li>`)}</ul></details>`}
  </section>`;
}

/** Semantic hits of this tab's playground, and of the newest requests where the gateway tells their entries. */
function NearHits() {
  const recent = usePoll("/admin/requests?outcome=semantic&limit=50", 0);
  const [judged, setJudged] = useState(() => new Set());
  const own = play.turns.flatMap((turn) => turn.answers.filter((answer) => answer.headers["x-cache-entry"]).map((answer) => ({
    entry: answer.headers["x-cache-entry"], similarity: Number(answer.headers["x-cache-similarity"]),
    score: answer.headers["x-cache-score"] ? Number(answer.headers["x-cache-score"]) : null, model: answer.model, question: turn.text})));
  const others = ((recent.data && recent.data.requests) || []).filter((each) => each.cache_entry).map((each) => ({
    entry: each.cache_entry, similarity: each.cache_similarity, score: each.cache_score, model: each.model, question: ""}));
  const known = new Map([...others, ...own].map((hit) => [hit.entry, hit]));
  const hits = [...known.values()].sort((one, two) => (one.score ?? one.similarity) - (two.score ?? two.similarity));
  return html`<section class="card" id="near-hits"><h2>Near hits to judge</h2>
    <p class="note">Answers that were given to a question in other words, the least certain first. A wrong one is dropped at once, and
      the cache learns from it.</p>
    ${hits.length === 0 ? html`<${Empty} title="No near hits yet">Ask something in the playground, then ask it in other words.<//>`
      : html`<ul class="hits">${hits.map((hit) => html`<${NearHit} key=${hit.entry} hit=${hit} done=${judged.has(hit.entry)}
          onJudged=${() => setJudged((old) => new Set(old).add(hit.entry))} />`)}</ul>`}
  </section>`;
}

function NearHit({hit, onJudged}) {
  const [entry, setEntry] = useState(null);
  useEffect(() => {
    call(`/admin/cache?id=${encodeURIComponent(hit.entry)}`)
      .then((found) => setEntry(found.entries[0] || {gone: true})).catch(() => setEntry({gone: true}));
  }, [hit.entry]);
  return html`<li data-entry=${hit.entry}><ul class="facts"><li>${hit.model}</li><li>similarity <b>${number(hit.similarity, 4)}</b></li>
      ${hit.score !== null && hit.score !== undefined && html`<li>score <b>${number(hit.score, 3)}</b></li>`}</ul>
    ${hit.question && html`<p><span class="who">Asked</span> ${hit.question}</p>`}
    ${entry && !entry.gone && html`<p><span class="who">Answered as</span> ${entry.text}</p>
      <blockquote>${entry.answer.slice(0, 400)}${entry.answer.length > 400 ? " …" : ""}</blockquote>`}
    ${entry && entry.gone ? html`<p class="note">The entry is not there any more.</p>`
      : html`<${Judge} entry=${hit.entry} onJudged=${onJudged} />`}</li>`;
}

function Entries({again}) {
  const [by, setBy] = useState("model");
  const [value, setValue] = useState("");
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const query = `/admin/cache?${by}=${encodeURIComponent(value.trim())}`;
  const attempt = (work) => async (event) => {
    event.preventDefault();
    if (!value.trim()) return;
    try { await work(); setError(null); } catch (failure) { setError(failure); }
  };
  const look = attempt(async () => setFound(await call(query)));
  const purge = attempt(async () => {
    if (!confirm(`Remove every entry whose ${by} is ${value.trim()}?`)) return;
    const {deleted} = await call(query, {method: "DELETE"});
    toasts.show(`${number(deleted)} entries are removed.`, "good");
    setFound(null);
    again();
  });
  return html`<section class="card"><h2>Entries</h2>
    <form class="row filters" onSubmit=${look}>
      <${Field} label="Select by"><select value=${by} onChange=${(event) => setBy(event.target.value)}>
        ${SELECT_BY.map((name) => html`<option value=${name}>${name}</option>`)}</select><//>
      <${Field} label="Value"><input value=${value} onInput=${(event) => setValue(event.target.value)} spellcheck=${false} /><//>
      <button type="submit" disabled=${!value.trim()}>Show</button>
      <button type="button" class="danger" disabled=${!value.trim()} onClick=${purge}>Purge …</button>
    </form>
    ${error && html`<p class="error" role="alert">${error.message}</p>`}
    ${found && html`<p class="note">${number(found.entries.length)} entries${found.entries.length === found.limit ? " (the first ones)" : ""}</p>
      <div class="scroll"><table class="grid"><thead><tr><th scope="col">Question</th><th scope="col">Answer</th><th scope="col">Model</th>
        <th scope="col">Tenant</th><th scope="col">Tags</th><th scope="col">Made</th><th scope="col">Expires</th></tr></thead>
      <tbody>${found.entries.map((entry) => html`<tr><th scope="row" class="text">${entry.text}</th>
        <td class="text">${entry.answer.slice(0, 160)}${entry.answer.length > 160 ? " …" : ""}</td><td>${entry.model}</td>
        <td>${entry.tenant}</td><td>${(entry.tags || []).join(", ") || NOTHING}</td><td>${ago(Date.now() / 1000 - entry.created_at)}</td>
        <td>${new Date(entry.expires_at * 1000).toLocaleString("en-GB")}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}
