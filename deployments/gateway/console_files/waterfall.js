// Where the milliseconds of one request went.

const STEP_KINDS = [
  [/^(prefill|first|engine|upstream-ttft|joined)/, "engine", "the engine, until its first token"],
  [/^(admit|body|auth|parse)/, "own", "checks of the request"],
  [/^(exact|memory|embed|search|decide|decision|look|cache|race|ask-model|store)/, "cache", "the cache"],
  [/^(queue|wait|slot)/, "queue", "waiting for room"],
  [/^(route|place|connect|upstream|send|attempt)/, "route", "on the way to the engine"],
  [/^(decode|stream|relay|last|tokens)/, "decode", "tokens"],
];

function kindOf(name) {
  const found = STEP_KINDS.find(([pattern]) => pattern.test(name));
  return found ? found[1] : "own";
}

/** `Server-Timing` as steps one after the other; it has durations only. */
function stepsOfServerTiming(header) {
  let at = 0;
  return (header || "").split(",").flatMap((part) => {
    const [name, ...parameters] = part.trim().split(";");
    const found = parameters.map((each) => /^\s*dur=([\d.]+)/.exec(each)).find(Boolean);
    if (!name || !found) return [];
    const duration = Number(found[1]);
    const step = {name, start: at, duration};
    at += duration;
    return [step];
  });
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
