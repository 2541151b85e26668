// The fleet: members, their load, and how long they took to start.

const FLEET_EVERY_MS = 1_000;
const STATE_KINDS = {ready: "good", serving: "good", running: "good", draining: "near", starting: "near", asleep: "plain"};

function Fleet() {
  const fleet = usePoll("/admin/fleet", FLEET_EVERY_MS);
  const engines = usePoll("/admin/engines", 5 * FLEET_EVERY_MS);
  return html`<${Head} title="Fleet"><small>${fleet.at ? `as of ${new Date(fleet.at).toLocaleTimeString("en-GB")}` : ""}</small><//>
    <${Loaded} poll=${fleet} what="The fleet is shown to administrators.">${(models) =>
      Object.entries(models).map(([model, members]) => html`<${Model} model=${model} members=${members}
        engine=${(engines.data || {})[model]} />`)}<//>`;
}

function Model({model, members, engine}) {
  const sum = (name) => members.reduce((total, member) => total + (member[name] || 0), 0);
  const serving = members.filter((member) => member.can_serve).length;
  return html`<section class="card" data-fleet=${model}>
    <h2>${model} <${Badge} kind=${serving ? "good" : "bad"}>${serving} of ${members.length} can serve<//></h2>
    ${engine && engine.message && html`<p class="note">${engine.status}: ${engine.message}</p>`}
    <div class="tiles"><${Tile} label="Running" value=${number(sum("running"))} />
      <${Tile} label="Waiting in engines" value=${number(sum("waiting"))} />
      <${Tile} label="In flight from here" value=${number(sum("in_flight"))} />
      <${Tile} label="Replicas" value=${number(members.length)} note=${engine && engine.status} /></div>
    <div class="scroll"><table class="grid"><thead><tr><th scope="col">Member</th><th scope="col">State</th><th scope="col" class="num">Running</th>
      <th scope="col" class="num">Waiting</th><th scope="col">KV cache</th><th scope="col">Load</th><th scope="col" class="num">Service time</th>
      <th scope="col">Speculation</th><th scope="col" class="num">Reported</th></tr></thead>
      <tbody>${members.map((member) => html`<${MemberRow} member=${member} />`)}</tbody></table></div>
    ${engine && engine.scaling.length > 0 && html`<${Scaling} changes=${engine.scaling} />`}
    ${engine && engine.replicas.map((replica) => html`<${Start} replica=${replica} />`)}
  </section>`;
}

/** Why the fleet was scaled. Reasons are shown as the server names them. */
function Scaling({changes}) {
  const what = (change) => [
    change.from === change.to ? `${number(change.to)} replicas` : `${number(change.from)} → ${number(change.to)} replicas`,
    change.wake ? `${number(change.wake)} woken` : "", change.sleep ? `${number(change.sleep)} put to sleep` : "",
  ].filter(Boolean).join(", ");
  return html`<h3>Why the autoscaler changed it</h3>
    <div class="scroll"><table class="grid scaling"><thead><tr><th scope="col">When</th><th scope="col">Change</th><th scope="col">Reason</th>
      <th scope="col" class="num">The load needed</th></tr></thead>
    <tbody>${changes.map((change) => html`<tr><th scope="row">${new Date(change.at * 1000).toLocaleString("en-GB")}<small>${ago(Date.now() / 1000 - change.at)}</small></th>
      <td>${what(change)}</td><td><${Badge}>${change.reason.replaceAll("_", " ")}<//></td>
      <td class="num">${number(change.needed)}</td></tr>`)}</tbody></table></div>`;
}

function MemberRow({member}) {
  const room = member.limit || member.capacity;
  const kind = member.can_serve ? STATE_KINDS[member.state] || "good" : "bad";
  const speculation = member.speculation;
  return html`<tr><th scope="row"><code>${member.replica}</code><small>${member.url}</small></th>
    <td><${Badge} kind=${kind}>${member.can_serve ? member.state : `${member.state}, not serving`}<//></td>
    <td class="num">${number(member.running)}</td><td class="num">${number(member.waiting)}</td>
    <td><${Meter} value=${member.kv_cache_usage} label="KV cache in use" /> ${share(member.kv_cache_usage, 0)}</td>
    <td><${Meter} value=${room ? member.in_flight / room : 0} label="Slots in use" /> ${number(member.in_flight)}${room ? ` / ${number(room)}` : ""}</td>
    <td class="num">${member.service_s === null ? NOTHING : ms(member.service_s * 1000)}</td>
    <td>${speculation ? Object.entries(speculation).filter(([, value]) => typeof value === "number").slice(0, 3).map(([name, value]) =>
      html`<small>${name.replaceAll("_", " ")} <b>${number(value, 2)}</b></small> `) : NOTHING}</td>
    <td class="num">${ago(member.reported_ago_s)}</td></tr>`;
}

function Start({replica}) {
  let at = 0;
  const steps = Object.entries(replica.start_s || {}).map(([name, seconds]) => {
    const step = {name: name.replaceAll("_", " "), start: at, duration: seconds * 1000, kind: "engine"};
    at += step.duration;
    return step;
  });
  if (!steps.length) return null;
  return html`<details class="timing"><summary>Start of <code>${replica.replica}</code>: ${ms(at)}</summary>
    <${Waterfall} steps=${steps} total=${at} caption="Phases of the start:" /></details>`;
}
