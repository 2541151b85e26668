// What the gateways measure now, as charts that move.

const LIVE_EVERY_MS = 2_000;
const KEPT_POINTS = 300;
const EVERY = "all";
const WHOLE = "total";
const EXPERIMENTS_EVERY_MS = 5_000;
const WINDOW_NAMES = [["1m", "1 minute"], ["5m", "5 minutes"], ["30m", "30 minutes"]];
const MEASURES = [
  ["ttft", "First token"], ["itl", "Between tokens"], ["tpot", "Between tokens, mean of a stream"], ["e2e", "Whole request"],
  ["overhead", "Own overhead"], ["queue", "Queue"],
];
const SHARES = ["p50", "p95", "p99"];

/** Points of this tab; they stay while another page is open. */
const measured = {points: []};
session.listeners.add(() => { measured.points = []; });

/** Of one answer: it has the counts of all gateways, where two answers may come from two of them. */
function pointOf(latency) {
  const minute = latency.windows["1m"];
  const counts = minute.models[EVERY]?.counts ?? {};
  const perSecond = (name) => (minute.covered_s > 0 ? (counts[name] ?? 0) / minute.covered_s : null);
  return {at: Date.now() / 1000, latency, rate: perSecond("requests"), refused: perSecond("refused"), hits: hitRate(counts)};
}

function useHistory() {
  const token = useToken();
  const [state, setState] = useState({data: measured.points.length ? measured.points : null, error: null});
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    const signal = controller.signal;
    let timer = null, isFirst = true;
    setState({data: measured.points.length ? measured.points : null, error: null});
    const ask = async () => {
      if (!document.hidden || isFirst) {
        isFirst = false;
        try {
          const latency = await call("/admin/latency", {signal});
          measured.points = [...measured.points, pointOf(latency)].slice(-KEPT_POINTS);
          setState({data: measured.points, error: null});
        } catch (error) {
          if (error.name === "AbortError") return;
          setState((old) => ({...old, error}));
          if (error.needsSignIn) return;
        }
      }
      timer = setTimeout(ask, LIVE_EVERY_MS);
    };
    ask();
    return () => { controller.abort(); clearTimeout(timer); };
  }, [token, round]);
  return {...state, again: () => setRound((old) => old + 1)};
}

/** The measures of a window: {ttft: {count, mean, p50, …}, …}; empty where nothing was measured. */
function measuresOf(latency, span, model, outcome) {
  return latency.windows[span]?.models?.[model]?.outcomes?.[outcome] ?? {};
}

function Live() {
  const poll = useHistory();
  const [span, setSpan] = useState("1m");
  const [model, setModel] = useState(EVERY);
  const models = Object.keys(poll.data?.at(-1)?.latency.windows?.["30m"]?.models ?? {});
  return html`<${Head} title="Live">
      <label class="inline">Window <select value=${span} onChange=${(event) => setSpan(event.target.value)}>
        ${WINDOW_NAMES.map(([name, label]) => html`<option value=${name} selected=${name === span}>${label}</option>`)}</select></label>
      <label class="inline">Model <select value=${model} onChange=${(event) => setModel(event.target.value)}>
        ${[EVERY, ...models.filter((name) => name !== EVERY)].map((name) => html`<option value=${name} selected=${name === model}>${name}</option>`)}</select></label><//>
    <${Loaded} poll=${poll} what="Measurements are shown to administrators.">${(points) =>
      html`<${LiveCharts} points=${points} span=${span} model=${model} />`}<//>`;
}

function LiveCharts({points, span, model}) {
  const times = points.map((point) => point.at);
  const newest = points.at(-1);
  const now = measuresOf(newest.latency, span, model, EVERY);
  const counts = newest.latency.windows[span]?.models?.[model]?.counts ?? {};
  const percentiles = (measure) => SHARES.map((name) => ({label: name,
    values: points.map((point) => measuresOf(point.latency, span, model, EVERY)[measure]?.[name] ?? null)}));
  const of = (name) => points.map((point) => point[name]);
  return html`<div class="tiles"><${Tile} label="Requests" value=${number(counts.requests ?? 0)} note="in the window" />
      <${Tile} label="Now" value=${`${number(newest.rate ?? 0, 1)} /s`} />
      <${Tile} label="First token, p50" value=${ms(now.ttft?.p50)} note=${`p99 ${ms(now.ttft?.p99)}`} />
      <${Tile} label="Whole request, p50" value=${ms(now.e2e?.p50)} note=${`p99 ${ms(now.e2e?.p99)}`} />
      <${Tile} label="Own overhead, p50" value=${ms(now.overhead?.p50)} note=${`p99 ${ms(now.overhead?.p99)}`} />
      ${counts.look_ups > 0 && html`<${Tile} label="Hit rate" value=${share(hitRate(counts))} note="in the window" />`}</div>
    <div class="charts">
      <${Chart} title="First token" times=${times} format=${ms} series=${percentiles("ttft")} />
      <${Chart} title="Between tokens" times=${times} format=${ms} series=${percentiles("itl")} />
      <${Chart} title="Whole request" times=${times} format=${ms} series=${percentiles("e2e")} />
      <${Chart} title="Own overhead" times=${times} format=${ms} series=${percentiles("overhead")} />
      <${Chart} title="Throughput, of the last minute" times=${times} format=${(value) => `${number(value, 1)} /s`} series=${[
        {label: "requests", values: of("rate")}, {label: "refused", values: of("refused")}]} />
      ${points.some((point) => point.hits !== null) && html`<${Chart} title="Hit rate, of the last minute" times=${times} format=${(value) => share(value, 0)} series=${[
        {label: "of the look-ups", values: of("hits")}]} />`}
    </div>
    <${Outcomes} latency=${newest.latency} span=${span} model=${model} /><${Experiments} /><${Steps} latency=${newest.latency} />`;
}

/** Arms side by side. Nothing where the settings have no experiments. */
function Experiments() {
  const poll = usePoll("/admin/experiments", EXPERIMENTS_EVERY_MS);
  return html`${(poll.data?.experiments ?? []).map((each) => html`<section class="card" data-experiment=${each.name}><h2>Experiment ${each.name}
      ${each.stopped ? html`<${Badge} kind="bad">ended<//>` : html`<${Badge} kind="good">${each.kind}<//>`}</h2>
    <p class="note">${each.stopped ? `It has ended, and everybody gets the control: ${each.stopped}` : "As this gateway has measured it."}</p>
    <div class="scroll"><table class="grid"><thead><tr><th scope="col">Arm</th><th scope="col" class="num">Requests</th><th scope="col" class="num">Failed</th>
      ${["First token", "Whole request"].flatMap((name) => ["p50", "p95"].map((which) => html`<th scope="col" class="num">${name}, ${which}</th>`))}</tr></thead>
    <tbody>${each.arms.map((arm) => html`<tr><th scope="row">${arm.name}</th><td class="num">${number(arm.requests)}</td><td class="num">${number(arm.failed)}</td>
      ${[arm.ttft_ms, arm.e2e_ms].flatMap((of) => ["p50", "p95"].map((which) => html`<td class="num">${of[which] ? ms(of[which]) : NOTHING}</td>`))}</tr>`)}</tbody></table></div>
  </section>`)}`;
}

function Outcomes({latency, span, model}) {
  const outcomes = latency.windows?.[span]?.models?.[model]?.outcomes ?? {};
  const rows = Object.entries(outcomes).sort(([one], [two]) => (two === EVERY) - (one === EVERY)).flatMap(([outcome, measures]) => MEASURES.filter(([name]) => measures[name])
    .map(([name, label]) => [outcome, label, measures[name]]));
  if (!rows.length) return null;
  return html`<section class="card"><h2>By outcome</h2>
    ${latency.gateways > 1 && html`<p class="note">Of ${number(latency.gateways)} gateways together.</p>`}
    <${PercentileTable} first=${["Outcome", "Measure"]} rows=${rows.map(([outcome, label, each]) => [[outcome, label], each])} /></section>`;
}

function Steps({latency}) {
  const steps = Object.entries(latency).filter(([, each]) => each && typeof each === "object" && "p95" in each)
    .sort(([one], [two]) => (one === WHOLE) - (two === WHOLE));
  if (!steps.length) return null;
  return html`<section class="card"><h2>Steps of this gateway's newest requests</h2>
    <${PercentileTable} first=${["Step"]} rows=${steps.map(([name, each]) => [[html`<span class=${`dot ${kindOf(name)}`}></span>${name}`], each])} /></section>`;
}

function PercentileTable({first, rows}) {
  const shares = ["p50", "p90", "p95", "p99"].filter((name) => rows.some(([, each]) => name in each));
  return html`<div class="scroll"><table class="grid"><thead><tr>${first.map((name) => html`<th scope="col">${name}</th>`)}
      <th scope="col" class="num">Count</th>${shares.map((name) => html`<th scope="col" class="num">${name}</th>`)}</tr></thead>
    <tbody>${rows.map(([names, each]) => html`<tr><th scope="row">${names[0]}</th>${names.slice(1).map((name) => html`<td>${name}</td>`)}
      <td class="num">${number(each.count)}</td>${shares.map((name) => html`<td class="num">${ms(each[name])}</td>`)}</tr>`)}</tbody></table></div>`;
}

function hitRate(counts) {
  return counts.look_ups ? (counts.hits ?? 0) / counts.look_ups : null;
}
