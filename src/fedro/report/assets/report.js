"use strict";
(() => {
  const spec = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];
  const hidden = new Map(); // chart -> hidden names
  let printing = false;

  const theme = () => spec.themes[dark.matches && !printing ? "dark" : "light"];
  const faint = (color) => {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
    return `rgba(${r},${g},${b},0.17)`;
  };

  function withColors(trace, colors, off) {
    const { name, color: number, role } = trace.meta;
    const color = number < 0 ? colors.ink : colors.colors[number];
    const styled = { ...trace, visible: !off.has(name) };
    if (role === "heat") return styled;
    if (role === "high") styled.fillcolor = faint(color);
    if (role === "area") styled.fillcolor = color;
    if (trace.line) styled.line = { ...trace.line, color };
    if (role === "bars") styled.marker = { color };
    else if (trace.marker) styled.marker = { ...trace.marker, color };
    return styled;
  }

  function draw(div) {
    const plot = spec.plots[div.id];
    const colors = theme();
    const off = hidden.get(plot.chart) || new Set();
    const axis = (given) => ({
      ...given, gridcolor: colors.grid, linecolor: colors.grid, zeroline: false, tickfont: { size: 11 },
    });
    const layout = {
      ...plot.layout,
      xaxis: axis(plot.layout.xaxis), yaxis: axis(plot.layout.yaxis),
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colors.ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colors.paper, bordercolor: colors.grid, font: { color: colors.ink }, namelength: -1 },
      margin: { l: 8, r: 12, t: 12, b: 8 },
      height: plot.height, width: Math.max(plot.width, div.parentElement.clientWidth),
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      showlegend: false,
    };
    return Plotly.react(div, plot.data.map((trace) => withColors(trace, colors, off)), layout, {
      displayModeBar: false,
    });
  }

  // A click on a name in a legend hides or shows it; a double-click shows it alone.
  for (const legend of document.querySelectorAll(".legend")) {
    const buttons = [...legend.querySelectorAll("button")];
    const off = new Set();
    hidden.set(legend.dataset.chart, off);
    const update = () => {
      for (const button of buttons) button.setAttribute("aria-pressed", !off.has(button.dataset.name));
      plots.filter((div) => spec.plots[div.id].chart === legend.dataset.chart).forEach(draw);
    };
    for (const button of buttons) {
      const name = button.dataset.name;
      button.addEventListener("click", () => {
        off.has(name) ? off.delete(name) : off.add(name);
        update();
      });
      button.addEventListener("dblclick", () => {
        const alone = buttons.every((b) => b === button || off.has(b.dataset.name));
        off.clear();
        if (!alone) buttons.forEach((b) => b !== button && off.add(b.dataset.name));
        update();
      });
    }
  }

  const redraw = () => plots.forEach(draw);
  dark.addEventListener("change", redraw);
  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar appears and disappears
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 120);
  });
  addEventListener("beforeprint", () => {
    printing = true;
    document.body.classList.add("paper");
    redraw();
  });
  addEventListener("afterprint", () => {
    printing = false;
    document.body.classList.remove("paper");
    redraw();
  });

  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.from);
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(text); // so that the reader can copy it
      }
    });
  }

  // Draw a few plots at a time, so that the page stays responsive.
  const rest = [...plots];
  (function some() {
    const end = performance.now() + 60;
    while (rest.length && performance.now() < end) draw(rest.shift());
    if (rest.length) setTimeout(some);
    else document.documentElement.dataset.drawn = "all";
  })();
})();
