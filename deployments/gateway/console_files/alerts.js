// What needs a look: what fires, how far the other rules are from it, what has changed.

const ALERTS_EVERY_MS = 3_000;

function Alerts() {
  const poll = usePoll("/admin/alerts", ALERTS_EVERY_MS);
  return html`<${Head} title="Alerts"><//>
    <${Loaded} poll=${poll} what="Alerts are shown to administrators." missing="This server has no alerts.">${(data) => html`
      <section aria-label="Firing">${data.firing.length === 0
        ? html`<${Empty} title="All quiet">No alert is firing.<//>`
        : html`<ul class="alerts">${data.firing.map((alert) => html`<${Firing} alert=${alert} />`)}</ul>`}</section>
      <${Rules} rules=${data.rules} /><${Changes} changes=${data.changes} />`}<//>`;
}

function Firing({alert}) {
  return html`<li class="card"><h2>${alert.rule.replaceAll("_", " ")} <${Badge} kind="bad">firing<//></h2>
    <p>${alert.summary}</p><ul class="facts"><li>model <b>${alert.model}</b></li>
      <li>now <b>${measure(alert.value, alert.unit)}</b>, limit <b>${measure(alert.limit, alert.unit)}</b></li>
      <li>for <b>${ms(alert.for_s * 1000)}</b></li></ul></li>`;
}

function measure(value, unit) {
  if (unit === "share" && value !== null) return share(value, 0);
  return value === null ? "too few requests" : `${number(value, Number.isInteger(value) ? 0 : 2)} ${unit}`;
}

function Rules({rules}) {
  if (!rules.length) return null;
  return html`<section class="card"><h2>Rules</h2><div class="scroll"><table class="grid"><thead><tr><th scope="col">Rule</th><th scope="col">Model</th>
      <th scope="col">State</th><th scope="col" class="num">Now</th><th scope="col" class="num">Limit</th><th scope="col">Meaning</th></tr></thead>
    <tbody>${rules.map((rule) => html`<tr><th scope="row">${rule.rule.replaceAll("_", " ")}</th><td>${rule.model}</td>
      <td><${Badge} kind=${rule.firing ? "bad" : rule.value === null ? "plain" : "good"}>${rule.firing ? "firing" : rule.value === null ? "too few" : "ok"}<//></td>
      <td class="num">${rule.value === null ? NOTHING : measure(rule.value, rule.unit)}</td><td class="num">${measure(rule.limit, rule.unit)}</td>
      <td class="text">${rule.summary}</td></tr>`)}</tbody></table></div></section>`;
}

function Changes({changes}) {
  if (!changes.length) return null;
  return html`<section class="card"><h2>What has changed</h2><ul>${changes.toReversed().map((change) => html`<li class="row">
    <span class="num">${clock(change.at)}</span><${Badge} kind=${change.firing ? "bad" : "good"}>${change.firing ? "fires" : "cleared"}<//>
    ${change.rule.replaceAll("_", " ")}, ${change.model}</li>`)}</ul></section>`;
}
