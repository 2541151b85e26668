// Charts that move: uPlot with the page's colours.

const CHART_COLOURS = ["--chart-1", "--chart-2", "--chart-3", "--chart-4"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themeOf() {
  return document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** `times`: seconds of Unix time; `series`: [{label, values}], as long as `times`; `format` writes a value. */
function Chart({title, times, series, format}) {
  const box = useRef(null);
  const plot = useRef(null);
  const labels = series.map((each) => each.label).join("|");
  const theme = themeOf();
  useEffect(() => {
    const axis = {stroke: colour("--muted"), grid: {stroke: colour("--line"), width: 1}, ticks: {show: false},
      font: "11px system-ui, sans-serif"};
    const options = {
      width: box.current.clientWidth, height: 190, legend: {show: false}, cursor: {y: false},
      padding: [8, 26, 0, 0],
      scales: {y: {range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1]}},
      axes: [{...axis, space: 80, size: 26, values: (_, ticks) => ticks.map(clock)}, {...axis, size: 62, values: (_, ticks) => ticks.map(format)}],
      series: [{}, ...series.map((each, index) => ({
        label: each.label, stroke: colour(CHART_COLOURS[index]), width: 2, points: {show: false}, spanGaps: true,
        fill: series.length === 1 ? `${colour(CHART_COLOURS[index])}22` : undefined,
      }))],
    };
    plot.current = new uPlot(options, [[], ...series.map(() => [])], box.current);
    const observer = new ResizeObserver(() => plot.current.setSize({width: box.current.clientWidth, height: 190}));
    observer.observe(box.current);
    return () => { observer.disconnect(); plot.current.destroy(); };
  }, [labels, theme]);
  useEffect(() => { plot.current.setData([times, ...series.map((each) => each.values)]); });
  const newest = (values) => values.findLast((value) => value !== null && value !== undefined);
  const said = series.map((each) => `${each.label} ${format(newest(each.values) ?? NaN)}`).join(", ");
  return html`<section class="card chart" data-points=${times.length}><h2>${title}</h2>
    <ul class="legend">${series.map((each, index) => html`<li><span class=${`dot c${index + 1}`}></span>${each.label}
      <b>${format(newest(each.values) ?? NaN)}</b></li>`)}</ul>
    <div class="plot" ref=${box} role="img" aria-label=${`${title}: ${said}`}></div>
    ${series.every((each) => newest(each.values) === undefined) && html`<p class="nothing">Nothing measured yet</p>`}</section>`;
}
