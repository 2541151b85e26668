// What keys, users, teams and models used, as `promptly usage` prints it.

const USAGE_BY = ["day", "month", "tenant", "user", "key", "model"];
const USAGE_FIELDS = [["from", "From", "UTC day, 2026-01-31"], ["to", "To", "UTC day"], ["tenant", "Tenant", ""], ["model", "Model", ""]];
const USAGE_COLUMNS = [
  ["requests", "Requests", 0], ["refused", "Refused", 0], ["tokens_in", "Tokens in", 0], ["tokens_out", "Tokens out", 0],
  ["cache_hits", "Cache hits", 0], ["gpu_s", "GPU s", 1], ["cost", "Cost", 4], ["gpu_cost", "GPU cost", 4], ["saved", "Saved", 4],
];

function Usage() {
  const [typed, setTyped] = useState({});
  const [by, setBy] = useState(["day", "tenant", "model"]);
  const [asked, setAsked] = useState("");
  const poll = usePoll(`/admin/usage?by=${by.join(",")}${asked}`, 0);
  const submit = (event) => {
    event.preventDefault();
    const given = Object.entries(typed).map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    setAsked(given.length ? `&${new URLSearchParams(given)}` : "");
    poll.again();
  };
  const flip = (name) => setBy(USAGE_BY.filter((each) => (each === name) !== by.includes(each)));
  return html`<${Head} title="Usage"><small>The same as <code>promptly usage</code>; days are UTC days</small><//>
    <form class="row filters" onSubmit=${submit}>
      ${USAGE_FIELDS.map(([name, label, hint]) => html`<${Field} label=${label} hint=${hint}><input name=${name} spellcheck=${false}
        value=${typed[name] || ""} onInput=${(event) => setTyped({...typed, [name]: event.target.value})} /><//>`)}
      <button class="primary" type="submit">Show</button></form>
    <div class="row" role="group" aria-label="Grouped by">${USAGE_BY.map((name) => html`<button type="button" data-by=${name}
      aria-pressed=${by.includes(name) ? "true" : "false"} onClick=${() => flip(name)}>${by.includes(name) ? "✓ " : ""}${name}</button>`)}</div>
    <${Loaded} poll=${poll} what="Usage is shown to administrators, and to those of a team."
      missing="This server keeps no usage: its settings have no accounts.">${(data) => html`<${UsageTable} data=${data} />`}<//>`;
}

function UsageTable({data}) {
  if (!data.usage.length) return html`<${Empty} title="Nothing was used">No request fits, or none has been counted yet.<//>`;
  const numbers = (row) => USAGE_COLUMNS.map(([name, , digits]) => html`<td class="num">${number(row[name], digits)}</td>`);
  return html`<section class="card" data-usage=${data.usage.length}><div class="scroll"><table class="grid"><thead><tr>
      ${data.by.map((name) => html`<th scope="col">${name}</th>`)}
      ${USAGE_COLUMNS.map(([, label]) => html`<th scope="col" class="num">${label}</th>`)}</tr></thead>
    <tbody>${data.usage.map((row) => html`<tr>${data.by.map((name) => html`<td>${row[name] || NOTHING}</td>`)}${numbers(row)}</tr>`)}</tbody>
    <tfoot><tr>${data.by.map((_, place) => html`<th scope="row">${place ? "" : "total"}</th>`)}${numbers(data.total)}</tr></tfoot></table></div>
    ${data.more && html`<p class="note">There are more rows: ask for fewer days, or use <code>promptly usage --csv</code>.</p>`}</section>`;
}
