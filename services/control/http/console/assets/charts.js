// Draws an hour of each number that the page shows, with one cursor for all of them.
"use strict";
(() => {
  const box = document.querySelector("[data-history]");
  if (!box) return;
  const HEIGHT = 64;
  const moved = box.dataset.moved.split(" ").filter(Boolean).map(Number); // when streams moved, s UTC
  const sync = uPlot.sync("hour");
  const charts = [];
  const figures = [...box.querySelectorAll("[data-series]")];
  // a canvas knows no variables, so an element says which colour one stands for in this theme
  const probe = document.head.appendChild(document.createElement("meta"));
  function colour(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }
  const clock = (at) => new Date(at * 1000).toISOString().slice(11, 16);
  const number = (value) => (!isKnown(value) ? "" : value > 0 && value < 100 && value % 1
    ? value.toFixed(1) : Math.round(value).toLocaleString("en-US"));

  const isKnown = (value) => value !== null && value !== undefined;
  const lasting = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`);
  const wordsOf = (unitMs) => (unitMs ? (value) => (isKnown(value) ? lasting(value * unitMs) : "") : number);

  // one column of numbers; refusals are a column for each reason
  function columnOf(history, name) {
    const found = history[name];
    if (Array.isArray(found)) return found;
    const reasons = Object.values(found ?? {});
    return reasons[0]?.map((_, n) => reasons.reduce((sum, one) => (one[n] === null ? sum : (sum ?? 0) + one[n]), null));
  }

  // the hour of a lag wears the warning colour while it is too much
  const LAGS = ["lag", "lag_ms"];
  const isBad = (figure) => LAGS.includes(figure.dataset.series) && document.querySelector("[data-is-bad]").textContent !== "OK";

  const lastPoint = (figure) => (plot) => {
    const [times, values] = plot.data;
    const at = values.findLastIndex(isKnown);
    if (at < 0) return;
    const { ctx } = plot;
    ctx.beginPath();
    ctx.arc(plot.valToPos(times[at], "x", true), plot.valToPos(values[at], "y", true), 3 * devicePixelRatio, 0, 7);
    ctx.fillStyle = colour(isBad(figure) ? "--warn" : "--t1");
    ctx.fill();
  };

  function baseline({ ctx, bbox }) {
    ctx.fillStyle = colour("--control");
    ctx.fillRect(bbox.left, bbox.top + bbox.height, bbox.width, devicePixelRatio);
  }

  function handovers(plot) {
    const { ctx, bbox } = plot;
    ctx.fillStyle = colour("--accent");
    for (const at of moved)
      if (at >= plot.scales.x.min && at <= plot.scales.x.max)
        ctx.fillRect(plot.valToPos(at, "x", true), bbox.top + bbox.height, 2, 4 * devicePixelRatio);
  }

  // labels that the edges would cut are left out
  const EDGE = 16;
  function whole({ scales: { x }, width }, times) {
    const left = (at) => ((at - x.min) / (x.max - x.min)) * width;
    return times.map((at) => (left(at) < EDGE || left(at) > width - EDGE ? null : at));
  }

  function options(figure) {
    return {
      width: figure.clientWidth, height: HEIGHT, padding: [8, 4, 0, 0], legend: { show: false },
      cursor: { sync: { key: sync.key }, y: false, points: { size: 6 }, drag: { x: false } },
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1e-9) * 1.12] } },
      axes: [{
        size: 18, stroke: colour("--t3"), grid: { show: false }, ticks: { show: false }, font: "11px Geist, sans-serif",
        filter: whole, values: (_, times) => times.map((at) => (isKnown(at) ? clock(at) : "")), space: 90,
      }, { show: false }],
      series: [{}, {
        stroke: () => colour(isBad(figure) ? "--warn" : "--t2"), width: 1.5,
        fill: () => colour(isBad(figure) ? "--warn-fill" : "--raised"), points: { show: false }, spanGaps: false,
      }],
      hooks: { draw: [baseline, lastPoint(figure), handovers], setCursor: [showAt] },
    };
  }

  // under the cursor, the large numbers are those of that moment
  function showAt(plot) {
    const value = box.querySelector(`[data-hour-value="${plot.baton}"]`);
    if (!value) return;
    if (!isKnown(plot.cursor.idx)) {
      if (value.dataset.now !== undefined) { value.textContent = value.dataset.now; delete value.dataset.now; }
      return;
    }
    value.dataset.now ??= value.textContent;
    value.textContent = plot.words(plot.data[1][plot.cursor.idx]);
  }

  // from the least to the most; of durations the most, of refusals the newest rate of each reason
  function rangeOf(found, known, words, isDuration) {
    if (found && !Array.isArray(found)) {
      const now = Object.entries(found).map(([reason, rates]) => [reason, rates.filter(isKnown).at(-1)]);
      return now.filter(([, rate]) => rate).map(([reason, rate]) => `${reason} ${number(rate)}`).join(", ");
    }
    const most = Math.max(0, ...known), high = words(most);
    if (isDuration) return most ? `at most ${high}` : "";
    if (!known.length) return "";
    const low = words(Math.min(...known));
    return low === high ? low : `${low} to ${high}`;
  }

  // what the server wrote beside a chart, of the hour that is drawn now
  function say(figure, found, values) {
    const tile = figure.parentElement;
    const known = values.filter(isKnown);
    const words = wordsOf(Number(figure.dataset.unitMs));
    const value = tile.querySelector("[data-hour-value]:not([data-fact])");
    if (value && value.dataset.now !== undefined) value.dataset.now = words(known.at(-1));
    else if (value) value.textContent = words(known.at(-1));
    const range = rangeOf(found, known, words, Boolean(figure.dataset.unitMs));
    tile.querySelector(".count").textContent = range;
    figure.ariaLabel = `${figure.ariaLabel.split(":")[0]}: ${range || "nothing is known"}`;
  }

  function draw(history) {
    const times = Object.values(history).find(Array.isArray).map((_, n) => (history.from + n * history.step_ms) / 1000);
    figures.forEach((figure, n) => {
      const values = columnOf(history, figure.dataset.series) ?? times.map(() => null);
      say(figure, history[figure.dataset.series], values);
      if (charts[n]) return charts[n].setData([times, values]);
      charts[n] = new uPlot(options(figure), [times, values], figure);
      charts[n].baton = figure.dataset.series;
      charts[n].words = wordsOf(Number(figure.dataset.unitMs));
      sync.sub(charts[n]);
    });
  }

  async function load() {
    const answer = await fetch(box.dataset.history).catch(() => null);
    if (answer?.ok) draw(await answer.json());
  }

  function redraw() {
    while (charts.length) charts.pop()?.destroy();
    load();
  }

  page.feed?.addEventListener("event", ({ detail }) => {
    const event = JSON.parse(detail.data);
    const stream = document.querySelector("#stream")?.dataset.stream ?? event.stream;
    if (event.kind === "handover" && Number(stream) === event.stream) moved.push(event.at / 1000);
  });
  addEventListener("resize", () => charts.forEach((chart, n) => chart?.setSize({ width: figures[n].clientWidth, height: HEIGHT })));
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  setInterval(() => { if (!document.hidden) load(); }, 15000);
  load();
})();
