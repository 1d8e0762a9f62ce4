"use strict";
(() => {
  const POLL_MS = 2000, KEPT = 150, TABLES_EVERY = 2, HEIGHT = 112, LEFT = 58, BOTTOM = 18, TOP = 8;
  const SVG = "http://www.w3.org/2000/svg";

  /* The text format of Prometheus: name{label="value"} number. */
  const parse = (text) => {
    const samples = new Map();
    for (const line of text.split("\n")) {
      const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
      if (!found) continue;
      const labels = {};
      for (const [, label, value] of (found[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[label] = value;
      if (!samples.has(found[1])) samples.set(found[1], []);
      samples.get(found[1]).push({ labels, value: Number(found[3].replace("Inf", "Infinity")) });
    }
    return samples;
  };
  const matching = (samples, name, labels) =>
    (samples.get(name) || []).filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value));
  const sum = (samples, name, labels = {}) => matching(samples, name, labels).reduce((total, sample) => total + sample.value, 0);
  const buckets = (samples, name) => {
    const bounds = new Map();
    for (const { labels, value } of matching(samples, name + "_bucket", {})) {
      const bound = Number(labels.le.replace("+Inf", "Infinity"));
      bounds.set(bound, (bounds.get(bound) || 0) + value);
    }
    return bounds;
  };

  const rate = (name, labels) => (now, before, seconds) =>
    Math.max(0, (sum(now, name, labels) - sum(before, name, labels)) / seconds);
  const gauge = (name) => (now) => sum(now, name);
  const quantile = (name, share) => (now, before) => {
    const earlier = buckets(before, name);
    const bounds = [...buckets(now, name)].map(([bound, count]) => [bound, count - (earlier.get(bound) || 0)]).sort((a, b) => a[0] - b[0]);
    const all = bounds.length ? bounds[bounds.length - 1][1] : 0;
    if (!(all > 0)) return null;
    let last = [0, 0];
    for (const [bound, count] of bounds) {
      if (count >= share * all && count > last[1]) {
        return bound === Infinity ? last[0] : last[0] + ((bound - last[0]) * (share * all - last[1])) / (count - last[1]);
      }
      last = [bound, count];
    }
    return last[0];
  };

  const digits = (value) => String(Number(value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)));
  const scaled = (value, step, units) => {
    let place = 0;
    while (place + 1 < units.length && value >= step * 0.9995) { value /= step; place += 1; }
    return digits(value) + units[place];
  };
  const perSecond = (value) => scaled(value, 1000, ["/s", "\u202fk/s", "\u202fM/s"]);
  const time = (value) => scaled(value * 1e6, 1000, ["\u202f\u00b5s", "\u202fms", "\u202fs"]);
  const bytes = (value) => scaled(value, 1024, ["\u202fB/s", "\u202fKiB/s", "\u202fMiB/s", "\u202fGiB/s"]);
  const plain = (value) => digits(value);

  const within = (name) => [["p50", quantile(name, 0.5)], ["p95", quantile(name, 0.95)], ["p99", quantile(name, 0.99)]];
  const rates = (name, label, values) => values.map((value) => [value.replace("_", " "), rate(name, { [label]: value })]);
  /* `pattern`: shown only if a shape has it. */
  const PLOTS = [
    { title: "Commands", unit: perSecond,
      series: rates("mongoshape_commands_total", "outcome", ["relayed", "rewritten", "rejected", "failed"]) },
    { title: "Duration of commands", unit: time, series: within("mongoshape_command_duration_seconds") },
    { title: "Overhead of the proxy", unit: time, series: within("mongoshape_proxy_overhead_seconds") },
    { title: "Client connections", unit: plain, series: [["open", gauge("mongoshape_client_connections")]] },
    { title: "Bytes", unit: bytes, series: rates("mongoshape_bytes_total", "direction", ["received", "sent"]) },
    { title: "Reads by access path", unit: perSecond, pattern: "bucket",
      series: rates("mongoshape_reads_total", "strategy", ["page", "index", "stream", "pipeline", "change_stream"]) },
    { title: "Inserts into pages", unit: perSecond, pattern: "bucket",
      series: [["items", rate("mongoshape_bucket_items_inserted_total")], ["pages begun", rate("mongoshape_buckets_opened_total")]] },
    { title: "Outliers", unit: perSecond, pattern: "outlier",
      series: [["spills", rate("mongoshape_outlier_spills_total")], ["merged replies", rate("mongoshape_outlier_merged_reads_total")]] },
  ];

  const element = (space, name, attributes = {}, text = "") => {
    const made = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    made.textContent = text;
    return made;
  };
  /* The next round number, of a unit that is so many of the one below it. */
  const niceTop = (value, step) => {
    if (!(value > 0)) return 1;
    const unit = step === 1024 ? 1024 ** Math.floor(Math.log2(value) / 10) : 1;
    const power = 10 ** Math.floor(Math.log10(value / unit));
    return [1, 2, 4, 6, 8, 10].map((round) => round * power * unit).find((top) => top >= value * 0.999);
  };

  const plots = document.getElementById("plots"), lost = document.getElementById("lost");
  const shown = PLOTS.filter(({ pattern }) => !pattern || plots.dataset.patterns.split(" ").includes(pattern));
  /* `pointed`: the time that the reader points at, in all charts; null: now. */
  let before = null, times = [], pointed = null, polls = 0;

  const begin = (plot) => {
    plot.points = plot.series.map(() => []);
    const figure = element("", "figure");
    plot.legend = element("", "ul");
    plot.at = element("", "span");
    plot.svg = element(SVG, "svg", { role: "img" });
    plot.svg.addEventListener("pointermove", (event) => point(plot, event.offsetX));
    plot.svg.addEventListener("pointerdown", (event) => point(plot, event.offsetX));
    plot.svg.addEventListener("pointerleave", () => { pointed = null; shown.forEach(draw); });
    const caption = element("", "figcaption", {}, plot.title);
    caption.append(plot.at);
    figure.append(caption, plot.svg, plot.legend);
    plots.querySelector(".plots").append(figure);
  };
  const scale = (plot) => {
    const width = plot.svg.clientWidth || 320;
    const end = times[times.length - 1], start = Math.min(times[0], end - 60000);
    return { width, start, end, x: (at) => LEFT + ((at - start) / (end - start)) * (width - LEFT - 4) };
  };
  const point = (plot, offset) => {
    if (!times.length) return;
    const { x } = scale(plot);
    pointed = times.reduce((best, at) => (Math.abs(x(at) - offset) < Math.abs(x(best) - offset) ? at : best));
    shown.forEach(draw);
  };
  const draw = (plot) => {
    const { width, start, end, x } = scale(plot);
    const values = plot.points.flat().filter((value) => value !== null);
    const top = niceTop(Math.max(0, ...values), plot.unit === bytes ? 1024 : 1000);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    const drawn = [];
    for (const share of [0, 0.5, 1]) {
      const height = y(share * top);
      drawn.push(element(SVG, "line", { class: "axis", x1: LEFT, x2: width - 4, y1: height, y2: height }));
      drawn.push(element(SVG, "text", { class: "tick", x: LEFT - 5, y: height + 4, "text-anchor": "end" }, plot.unit(share * top)));
    }
    const ago = (at) => `${Math.round((end - at) / 1000)} s ago`;
    drawn.push(element(SVG, "text", { class: "tick", x: LEFT, y: HEIGHT - 4 }, ago(start)));
    drawn.push(element(SVG, "text", { class: "tick", x: width - 4, y: HEIGHT - 4, "text-anchor": "end" }, "now"));
    const place = Math.max(times.indexOf(pointed), pointed === null ? times.length - 1 : 0);
    if (pointed !== null) {
      drawn.push(element(SVG, "line", { class: "pointer", x1: x(times[place]), x2: x(times[place]), y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    plot.at.textContent = pointed === null ? "" : ago(times[place]);
    const words = plot.series.map(([name], series) => {
      const value = plot.points[series][place];
      return `${name} ${value === null || value === undefined ? "\u2013" : plot.unit(value)}`;
    });
    plot.legend.replaceChildren(...words.map((text, series) => {
      let path = "", pen = "M";
      plot.points[series].forEach((value, index) => {
        if (value === null) { pen = "M"; return; }
        path += `${pen}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      });
      if (path) drawn.push(element(SVG, "path", { class: `series series-${series}`, d: path }));
      const item = element("", "li", { class: `series-${series}` });
      item.append(element("", "span", {}, text));
      return item;
    }));
    plot.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    plot.svg.replaceChildren(...drawn);
    plot.svg.setAttribute("aria-label", `${plot.title}, ${ago(times[place])}: ${words.join(", ")}`);
  };

  const plotsFrom = (text) => {
    const at = performance.now(), now = parse(text);
    /* A process that began anew counts from zero: what was before says nothing of it. */
    if (before && sum(now, "process_start_time_seconds") !== sum(before.samples, "process_start_time_seconds")) before = null;
    if (before) {
      times = [...times, at].slice(-KEPT);
      if (pointed !== null && !times.includes(pointed)) pointed = times[0];
      for (const plot of shown) {
        plot.points = plot.points.map((points, place) =>
          [...points, plot.series[place][1](now, before.samples, (at - before.at) / 1000)].slice(-KEPT));
        draw(plot);
      }
      plots.dataset.samples = times.length;
    }
    before = { at, samples: now };
  };
  const tablesFrom = (text) => {
    /* Its own style has another nonce than this page's policy. */
    const fresh = new DOMParser().parseFromString(text.slice(text.indexOf("<body>")), "text/html");
    if (!document.getSelection().isCollapsed || document.activeElement.closest("#tables")) return;
    const scrolled = new Map([...document.querySelectorAll("#tables .scroll")].map((box) => [box.ariaLabel, box.scrollLeft]));
    for (const id of ["clock", "state", "tables"]) {
      document.getElementById(id).replaceChildren(...document.adoptNode(fresh.getElementById(id)).childNodes);
    }
    for (const box of document.querySelectorAll("#tables .scroll")) box.scrollLeft = scrolled.get(box.ariaLabel) || 0;
  };
  const fetched = async (path) => {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
    return answer.text();
  };
  const poll = async () => {
    try {
      plotsFrom(await fetched("/metrics"));
      polls += 1;
      if (polls % TABLES_EVERY === 0) tablesFrom(await fetched("/"));
      lost.textContent = "";
    } catch (error) {
      lost.textContent = `The proxy does not answer (${error.message}); what is shown is from before.`;
    }
    setTimeout(poll, POLL_MS);
  };
  plots.hidden = false;
  shown.forEach(begin);
  addEventListener("resize", () => { if (times.length) shown.forEach(draw); });
  poll();
})();
