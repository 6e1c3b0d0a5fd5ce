"use strict";
// Everything here is an addition: without it the page has the same tables and figures, at rest.
(() => {
  const NOTHING = "–";

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function draw(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function save(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // ---- tables ----

  const UNITS = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400, "%": 0.01, k: 1e3, M: 1e6, G: 1e9 };

  // The number that a cell begins with: "1,234", "> 5,000", "×1/4", "64 (×4)", "3.2 min"; else null.
  function parseNumber(text) {
    const found = /^(?:not )?[<>≥≤≈×~+]*\s*([-−+]?)\$?([\d,]*\.?\d+)(e[-+]?\d+)?(?:\/(\d+))?/i.exec(text.trim());
    if (!found) return null;
    const [whole, sign, digits, exponent, divisor] = found;
    const unit = /^\s*(ms|s|min|h|d|%|k|M|G)(?![\w])/.exec(text.trim().slice(whole.length));
    const value = Number(digits.replaceAll(",", "") + (exponent || "")) / Number(divisor || 1);
    return (sign === "-" || sign === "−" ? -1 : 1) * value * (unit ? UNITS[unit[1]] : 1);
  }

  // A bound comes after the number itself: "> 5,000" is more than "5,000".
  function rankBound(text) {
    return /^[>≥]/.test(text) ? 1 : /^[<≤]/.test(text) ? -1 : 0;
  }

  function readCell(cell) {
    const aside = cell.querySelector(".aside");
    if (!aside) return cell.textContent.trim();
    return `${cell.firstChild.textContent.trim()} (${aside.textContent.trim()})`;
  }

  function isEmpty(text) {
    return text === "" || text === NOTHING;
  }

  function sortRows(rows, column, descending) {
    const keyed = rows.map((row, place) => ({ row, place, text: readCell(row.cells[column]) }));
    const filled = keyed.filter(({ text }) => !isEmpty(text));
    const numeric = filled.every(({ text }) => parseNumber(text) !== null);
    const compare = numeric
      ? (a, b) => parseNumber(a.text) - parseNumber(b.text) || rankBound(a.text) - rankBound(b.text)
      : (a, b) => a.text.localeCompare(b.text, "en", { numeric: true });
    // What has no value stays last either way.
    filled.sort((a, b) => (descending ? -1 : 1) * compare(a, b) || a.place - b.place);
    return [...filled, ...keyed.filter(({ text }) => isEmpty(text))].map(({ row }) => row);
  }

  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const original = [...body.rows];
    if (original.length < 2) return;
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    heads.forEach((head, column) => {
      const sort = () => {
        const order = next[head.getAttribute("aria-sort") || "none"];
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (order !== "none") head.setAttribute("aria-sort", order);
        body.append(...(order === "none" ? original : sortRows(original, column, order === "descending")));
      };
      const title = "Sort: ascending, descending, as it was";
      const button = make("button", { type: "button", title, onclick: sort });
      button.append(...head.childNodes);
      head.append(button);
    });
  }

  function writeCsv(table) {
    const number = /^[-+][\d.,]+(e[-+]?\d+)?(\s*%)?(\s\(.*\))?$/;
    const guard = (text) =>
      /^[=@\t\r]/.test(text) || (/^[-+]/.test(text) && !number.test(text)) ? `'${text}` : text;
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [...table.rows].map((row) =>
      [...row.cells].map((cell) => quote(guard(readCell(cell)))).join(","));
    return lines.join("\n") + "\n";
  }

  function addTableTools(table) {
    makeSortable(table);
    const title = table.caption.querySelector("strong").textContent.replace(/\.$/, "");
    const button = make("button", {
      type: "button",
      "aria-label": `Save the table ${title} as CSV`,
      onclick: () => save(table.dataset.file, "text/csv", writeCsv(table)),
    }, "Save as CSV");
    table.closest(".scroll").after(make("div", { class: "tools" }, button));
  }

  // ---- figures ----

  function writeSvg(svg) {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const box = svg.viewBox.baseVal;
    copy.setAttribute("width", box.width);
    copy.setAttribute("height", box.height);
    copy.removeAttribute("tabindex");
    copy.querySelectorAll(".cursor").forEach((mark) => mark.remove());
    return '<?xml version="1.0" encoding="utf-8"?>\n' + new XMLSerializer().serializeToString(copy);
  }

  function addFigureTools(figure) {
    const title = document.getElementById(figure.getAttribute("aria-labelledby")).textContent;
    const button = make("button", {
      type: "button",
      "aria-label": `Save the figure ${title} as SVG`,
      onclick: () => save(figure.dataset.file, "image/svg+xml", writeSvg(figure.querySelector(".plot > svg"))),
    }, "Save as SVG");
    figure.querySelector(".plot").after(make("div", { class: "tools" }, button));
  }

  // ---- the chart of learning curves ----

  const INK = "#22252a", MUTED = "#6b7078", GRID = "#e6e7e9";
  const SHAPES = ["circle", "square", "triangle", "diamond", "wedge", "plus", "cross"];
  const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4"];
  const AXES = {
    samples: "samples (rollouts generated)",
    training_seconds: "training time",
    elapsed_seconds: "elapsed time",
    tokens: "response tokens generated",
    device_hours: "device-hours (devices × elapsed hours)",
    updates: "optimizer updates",
  };
  const TIMES = [[3600, "h"], [60, "min"], [1, "s"]];

  function show(value) {
    const size = Math.abs(value);
    const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size === 0 ? 0 : 2 - Math.floor(Math.log10(size));
    return value.toLocaleString("en-US", { maximumFractionDigits: Math.min(digits, 8) });
  }

  function markShape(shape, x, y, size, color) {
    const path = {
      square: `M${x - size} ${y - size}h${2 * size}v${2 * size}h${-2 * size}z`,
      triangle: `M${x} ${y - 1.2 * size}l${1.2 * size} ${2.1 * size}h${-2.4 * size}z`,
      wedge: `M${x} ${y + 1.2 * size}l${1.2 * size} ${-2.1 * size}h${-2.4 * size}z`,
      diamond: `M${x} ${y - 1.4 * size}l${1.4 * size} ${1.4 * size}l${-1.4 * size} ${1.4 * size}l${-1.4 * size} ${-1.4 * size}z`,
      plus: `M${x - 1.3 * size} ${y}h${2.6 * size}M${x} ${y - 1.3 * size}v${2.6 * size}`,
      cross: `M${x - size} ${y - size}l${2 * size} ${2 * size}M${x + size} ${y - size}l${-2 * size} ${2 * size}`,
    }[shape];
    if (!path) return draw("circle", { cx: x, cy: y, r: size, fill: color });
    const stroked = shape === "plus" || shape === "cross";
    return draw("path", { d: path, fill: stroked ? "none" : color, stroke: color, "stroke-width": stroked ? 2 : 0 });
  }

  function chooseTicks(low, high, count, logarithmic) {
    if (logarithmic) {
      const ticks = [];
      const steps = high / low < 50 ? [1, 2, 5] : [1];
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
        for (const step of steps) ticks.push(step * 10 ** e);
      return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    }
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= rough * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
    return ticks;
  }

  function interpolate(from, to, at) {
    const next = from.findIndex((value) => value >= at);
    if (next < 0) return null;
    if (next === 0) return to[0];
    return to[next - 1] + ((to[next] - to[next - 1]) * (at - from[next - 1])) / (from[next] - from[next - 1]);
  }

  function nameRun(data, run) {
    const batch = data.batches.find((entry) => entry.batch === run.batch).label;
    const setting = data.settings.length > 1 ? `${run.setting}, ` : "";
    return `${setting}batch ${batch}, seed ${run.seed}`;
  }

  // Where the points of a run lie on an axis, and its crossing.
  function placeRun(run, axis) {
    const seconds = axis === "device_hours";
    const scale = seconds ? run.devices / 3600 : 1;
    const xs = run[seconds ? "elapsed_seconds" : axis].map((x) => x * scale);
    let crossing = null;
    if (run.crossing) {
      const known = run.crossing[seconds ? "elapsed_seconds" : axis];
      crossing = known === undefined ? interpolate(run.samples, xs, run.crossing.samples) : known * scale;
    }
    return { xs, crossing };
  }

  function startChart(data) {
    const section = document.getElementById("curves");
    const figure = section.querySelector("figure");
    const plot = make("div", { class: "plot" });
    const readout = make("div", { class: "readout", hidden: true });
    const spoken = make("div", { class: "unseen", role: "status" });
    const hidden = { batch: new Set(), seed: new Set(), setting: new Set() };
    const state = { axis: data.axes[0], values: "scores", logarithmic: false, run: null, point: 0 };
    const word = data.setting_word;
    let shown = null;

    const inputs = {};
    function addChoice(kind, title, entries) {
      const set = make("fieldset", {}, make("legend", {}, title));
      for (const [value, label, swatch] of entries) {
        const box = make("input", {
          type: "checkbox", checked: true, "data-kind": kind, "data-value": value,
          onchange: () => { hidden[kind][box.checked ? "delete" : "add"](value); redraw(); },
        });
        set.append(make("label", { class: "box" }, box, ...(swatch ? [swatch] : []), label));
      }
      return set;
    }
    function addSelect(name, title, options, change) {
      const select = make("select", { id: `curves-${name}`, onchange: () => { change(select.value); redraw(); } });
      for (const [value, label] of options) select.append(make("option", { value }, label));
      inputs[name] = select;
      return make("div", {}, make("label", { class: "name", for: `curves-${name}` }, title), select);
    }
    const colors = new Map(data.batches.map(({ batch, color }) => [batch, color]));
    const shapes = new Map(data.batches.map(({ batch }, i) => [batch, SHAPES[i % SHAPES.length]]));
    const dashes = new Map(data.settings.map((setting, i) => [setting, DASHES[i % DASHES.length]]));
    const swatch = (...parts) =>
      draw("svg", { class: "swatch", width: 28, height: 18, viewBox: "0 0 28 18", "aria-hidden": "true" }, ...parts);
    const line = (color, dash) =>
      draw("line", { x1: 1, x2: 27, y1: 9, y2: 9, stroke: color, "stroke-width": 2, "stroke-dasharray": dash });
    const logBox = make("input", {
      type: "checkbox", id: "curves-log",
      onchange: () => { state.logarithmic = logBox.checked; redraw(); },
    });
    const choices = make("div", { class: "choices" },
      addSelect("axis", "Against", data.axes.map((axis) => [axis, AXES[axis]]), (value) => { state.axis = value; }),
      addSelect("values", "Curve", [["scores", "scores as measured"], ["fit", "isotonic fit"]],
        (value) => { state.values = value; }),
      make("label", { class: "box" }, logBox, "logarithmic"),
      addChoice("batch", "Batches", data.batches.map(({ batch, label, color }) =>
        [batch, label, swatch(line(color, ""), markShape(shapes.get(batch), 14, 9, 4, color))])),
      ...(data.settings.length > 1 ? [addChoice("setting", `${word[0].toUpperCase()}${word.slice(1)}s`, data.settings.map((setting) =>
        [setting, setting, swatch(line(INK, dashes.get(setting)))]))] : []),
      addChoice("seed", "Seeds", data.seeds.map((seed) => [seed, String(seed)])));

    function isVisible(run) {
      return !hidden.batch.has(run.batch) && !hidden.seed.has(run.seed) && !hidden.setting.has(run.setting);
    }

    // Not Math.min(...values): a call takes no more than some 100,000 arguments.
    const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
    const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

    function layOut() {
      const width = Math.max(280, Math.min(672, plot.clientWidth - 10));
      const height = Math.round(Math.max(290, width * 0.62));
      const runs = data.runs.filter(isVisible).map((run) => ({ run, ...placeRun(run, state.axis) }));
      const all = data.runs.map((run) => placeRun(run, state.axis).xs);
      const ends = all.map((xs) => xs[xs.length - 1]);
      const end = most(runs.length ? runs.map(({ xs }) => xs[xs.length - 1]) : ends);
      const positive = all.flat().filter((x) => x > 0);
      const start = state.logarithmic && positive.length ? least(positive) : 0;
      const isTime = state.axis.endsWith("_seconds");
      const [unit, symbol] = isTime ? TIMES.find(([length]) => end >= 3 * length) || [1, "s"] : [1, ""];
      const scores = [data.target, ...data.runs.flatMap((run) => run[state.values])].filter((v) => v !== null);
      const margin = 0.05 * (most(scores) - least(scores)) + 0.002;
      const area = { left: 52, right: width - 14, top: 24, bottom: height - 46 };
      const low = least(scores) - margin, high = most(scores) + margin;
      const span = state.logarithmic ? Math.log(end / start) || 1 : end - start || 1;
      return {
        width, height, area, runs, start, end, unit, symbol, low, high,
        x: (v) => area.left + (area.right - area.left) * (state.logarithmic ? Math.log(v / start) : v - start) / span,
        y: (v) => area.bottom - ((area.bottom - area.top) * (v - low)) / (high - low),
        has: (v) => v !== null && (!state.logarithmic || v > 0),
      };
    }

    function redraw() {
      const place = layOut();
      const { area } = place;
      const label = (x, y, text, more = {}) =>
        draw("text", { x, y, fill: INK, "font-size": 12, "font-family": "system-ui, sans-serif", ...more }, text);
      const svg = draw("svg", {
        viewBox: `0 0 ${place.width} ${place.height}`, tabindex: 0, role: "application",
        "aria-label": "Learning curves: validation score. Left and right arrow keys move along a run,"
          + " up and down to the next run, Escape leaves.",
      });
      svg.append(draw("rect", { width: place.width, height: place.height, fill: "#ffffff" }));
      for (const tick of chooseTicks(place.low, place.high, 6, false)) {
        const y = place.y(tick);
        svg.append(draw("line", { x1: area.left, x2: area.right, y1: y, y2: y, stroke: GRID }),
          label(area.left - 7, y + 4, show(Number(tick.toPrecision(6))), { "text-anchor": "end" }));
      }
      let free = -Infinity;
      for (const tick of chooseTicks(place.start / place.unit, place.end / place.unit, place.width / 90, state.logarithmic)) {
        const x = place.x(tick * place.unit), text = show(Number(tick.toPrecision(6)));
        svg.append(draw("line", { x1: x, x2: x, y1: area.bottom, y2: area.bottom + 5, stroke: MUTED }));
        if (x - 3.7 * text.length < free) continue;
        free = x + 3.7 * text.length + 8;
        svg.append(label(x, area.bottom + 18, text, { "text-anchor": "middle" }));
      }
      const unit = place.symbol ? ` (${place.symbol})` : "";
      svg.append(
        draw("line", { x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom, stroke: MUTED }),
        label((area.left + area.right) / 2, place.height - 8, AXES[state.axis] + unit, { "text-anchor": "middle" }),
        label(6, 14, "validation score (mean reward)"));
      const target = place.y(data.target);
      svg.append(draw("line", {
        class: "target", x1: area.left, x2: area.right, y1: target, y2: target, stroke: INK, "stroke-dasharray": "6 4",
      }));
      for (const { run, xs, crossing } of place.runs) {
        const color = colors.get(run.batch), shape = shapes.get(run.batch);
        const ys = run[state.values];
        const points = xs.map((x, i) => [x, ys[i]]).filter(([x, y]) => place.has(x) && y !== null)
          .map(([x, y]) => [place.x(x), place.y(y)].map((v) => Number(v.toFixed(1))));
        const group = draw("g", { class: "run", "data-run": data.runs.indexOf(run) });
        group.append(draw("polyline", {
          points: points.map((point) => point.join(",")).join(" "), fill: "none", stroke: color,
          "stroke-width": 1.5, "stroke-dasharray": dashes.get(run.setting),
        }));
        const every = Math.ceil(points.length / 12);
        points.forEach(([x, y], i) => { if (i % every === 0 || i === points.length - 1) group.append(markShape(shape, x, y, 2.6, color)); });
        if (place.has(crossing)) group.append(draw("circle", {
          class: "crossing", cx: place.x(crossing), cy: target, r: 6, fill: "#ffffff", "fill-opacity": 0.7, stroke: color, "stroke-width": 2.5,
        }));
        else if (!run.crossing && run.finished && points.length) group.append(markShape("cross", ...points.at(-1), 5, color));
        svg.append(group);
      }
      svg.append(label(area.right, target - 6, `target ${show(data.target)}`, {
        "text-anchor": "end", stroke: "#ffffff", "stroke-width": 3, "paint-order": "stroke", "font-weight": 600,
      }));
      if (!place.runs.length) svg.append(label((area.left + area.right) / 2, (area.top + area.bottom) / 2,
        "no run chosen", { "text-anchor": "middle" }));
      const cursor = draw("g", { class: "cursor" });
      svg.append(cursor);
      const focused = document.activeElement === plot.querySelector("svg");
      plot.replaceChildren(svg, readout, spoken);
      if (focused) svg.focus({ preventScroll: true });
      shown = { ...place, svg, cursor };
      svg.addEventListener("pointermove", follow);
      svg.addEventListener("pointerdown", follow);
      // A finger that is lifted leaves too, but its reader is still reading.
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") leave(); });
      svg.addEventListener("blur", leave);
      svg.addEventListener("keydown", press);
      leave();
    }

    function leave() {
      readout.hidden = true;
      shown.cursor.replaceChildren();
      shown.svg.querySelectorAll(".run").forEach((group) => group.removeAttribute("opacity"));
    }

    // Reads out one point of one run, the others faded.
    function pick(entry, point, aloud) {
      const { run, xs } = entry;
      const y = run[state.values][point];
      state.run = run;
      state.point = point;
      const at = [shown.x(xs[point]), shown.y(y)];
      shown.svg.querySelectorAll(".run").forEach((group) => {
        const mine = data.runs[Number(group.dataset.run)] === run;
        group.setAttribute("opacity", mine ? 1 : 0.25);
      });
      shown.cursor.replaceChildren(draw("circle", {
        cx: at[0], cy: at[1], r: 7, fill: "none", stroke: INK, "stroke-width": 2,
      }));
      const unit = shown.symbol ? ` ${shown.symbol}` : "";
      const lines = [
        nameRun(data, run),
        `${AXES[state.axis].replace(/ \(.*/, "")}: ${show(xs[point] / shown.unit)}${unit}`,
        `score ${run.scores[point].toFixed(3)}, fit ${run.fit[point].toFixed(3)}`,
      ];
      readout.replaceChildren(...lines.flatMap((text, i) => (i ? [make("br"), text] : [make("strong", {}, text)])));
      readout.hidden = false;
      const scale = shown.svg.getBoundingClientRect().width / shown.width;
      const left = shown.svg.getBoundingClientRect().left - plot.getBoundingClientRect().left;
      const right = plot.clientWidth - readout.offsetWidth - 4;
      readout.style.left = `${Math.max(4, Math.min(right, left + at[0] * scale + 14))}px`;
      const above = at[1] * scale - readout.offsetHeight - 12;
      readout.style.top = `${above < 4 ? at[1] * scale + 18 : above}px`;
      if (aloud) spoken.textContent = lines.join(", ");
    }

    function follow(event) {
      const box = shown.svg.getBoundingClientRect(), scale = shown.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      let best = null;
      for (const entry of shown.runs)
        entry.xs.forEach((value, point) => {
          const score = entry.run[state.values][point];
          if (!shown.has(value) || score === null) return;
          const distance = Math.hypot(shown.x(value) - x, shown.y(score) - y);
          if (!best || distance < best.distance) best = { entry, point, distance };
        });
      if (best && best.distance < 40) pick(best.entry, best.point, false);
      else leave();
    }

    function press(event) {
      const runs = shown.runs;
      if (event.key === "Escape") return leave();
      const [along, across] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] || [0, 0];
      const jump = { Home: -1e9, End: 1e9 }[event.key] || 0;
      if (!runs.length || !(along || across || jump)) return;
      event.preventDefault();
      const current = runs.findIndex(({ run }) => run === state.run);
      const entry = runs[current < 0 ? 0 : (current + across + runs.length) % runs.length];
      const usable = entry.xs.map((x, i) => i).filter((i) => shown.has(entry.xs[i]) && entry.run[state.values][i] !== null);
      if (!usable.length) return;
      const nearest = usable.findIndex((i) => i >= state.point);
      const from = nearest < 0 ? usable.length - 1 : nearest;
      const to = current < 0 || across ? from : from + along + jump;
      pick(entry, usable[Math.max(0, Math.min(usable.length - 1, to))], true);
    }

    const reading = "One line per run: the colour and the mark are the batch"
      + (data.settings.length > 1 ? `, the dashes the ${word}` : "")
      + ". A ring is where the isotonic fit of the run crosses the target, a large ✕ where a run ended without. Point at a line for its values;"
      + " with the keyboard, use the arrow keys in the chart.";
    figure.append(choices, plot, make("figcaption", {}, reading));
    section.hidden = false;
    const firstLink = document.querySelector("nav li");
    firstLink.after(make("li", {}, make("a", { href: "#curves-title" }, "Learning curves")));
    const ends = data.runs.map((run) => placeRun(run, state.axis).xs.at(-1));
    logBox.checked = state.logarithmic = Math.max(...ends) > 8 * Math.min(...ends);
    redraw();
    let width = plot.clientWidth;
    addEventListener("resize", () => {
      if (plot.clientWidth !== width) { width = plot.clientWidth; redraw(); }
    });
  }

  const embedded = document.getElementById("curves-data");
  document.querySelectorAll("table[data-file]").forEach(addTableTools);
  if (embedded) startChart(JSON.parse(embedded.textContent));
  document.querySelectorAll("figure[data-file]").forEach(addFigureTools);
})();
