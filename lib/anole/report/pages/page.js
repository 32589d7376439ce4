// Draws the charts of the page one after another; data-drawn on the root element counts them.
"use strict";
(async () => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const config = {
    background: null,
    font: getComputedStyle(document.body).fontFamily.replaceAll('"', "'"),
    view: { stroke: null },
    range: {
      category: dark
        ? ["#6cb2eb", "#f6ad55", "#68d391", "#fc8181", "#b794f4", "#f687b3", "#4fd1c5", "#d6bc6a", "#a0aec0", "#90cdf4"]
        : ["#2468a8", "#c2610c", "#23804a", "#b9302c", "#7446b0", "#b0447c", "#147d79", "#84690a", "#5a6472", "#4a90c2"],
    },
    axis: {
      labelColor: "currentColor", titleColor: "currentColor", domainColor: "currentColor", tickColor: "currentColor",
      gridColor: "currentColor", gridOpacity: 0.15, domainOpacity: 0.5, tickOpacity: 0.5,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
    },
    legend: {
      labelColor: "currentColor", title: null, orient: "top", direction: "horizontal", labelFontSize: 12, labelLimit: 260,
      symbolOpacity: 1,
    },
    text: { color: "currentColor" },
    rule: { color: "currentColor" },
  };
  config.mark = { color: config.range.category[0] };
  const encoded = (view, channel) =>
    view.encoding?.[channel]?.field
    ? view.encoding[channel]
    : view.layer?.map(layer => encoded(layer, channel)).find(channelDef => channelDef);
  // The length of a field's longest text, or `otherwise` for fields that the chart itself computes.
  const longest = (values, field, otherwise) =>
    Math.max(...values.map(row => field in row ? String(row[field]).length : otherwise));
  const draw = async () => {
    let drawn = 0;
    for (const element of document.querySelectorAll(".chart")) {
      const spec = JSON.parse(document.getElementById(element.dataset.spec).textContent);
      const width = element.clientWidth;
      const chartConfig = structuredClone(config);
      const limit = Math.max(110, Math.min(320, width * 0.32));
      chartConfig.axisY = { labelLimit: limit, titleAnchor: "middle" };
      chartConfig.axisX = { labelFlush: 12 };
      // The legend starts at the end of the axis, and must fit into the remaining width.
      const { values } = spec.data, color = encoded(spec, "color"), y = encoded(spec, "y");
      const legend = color ? longest(values, color.field, 16) : 0;
      const left = width - (y?.type === "nominal" ? Math.min(limit, longest(values, y.field, 40) * 7.5) + 12 : 70);
      chartConfig.legend.columns = Math.max(1, Math.floor(left / (legend * 7.2 + 30)));
      chartConfig.legend.labelLimit = Math.min(260, left - 30);
      spec.width = width;
      spec.config = chartConfig;
      try {
        await vegaEmbed(element, spec, {
          mode: "vega-lite", renderer: "svg", actions: false, tooltip: { theme: dark ? "dark" : "light" },
          // Vega-Lite warns about fitting the width if the height depends on the number of rows; Vega does it.
          patch: vega => ({ ...vega, autosize: { type: "fit-x", contains: "padding" } }),
        });
        drawn += 1;
      } catch (error) {
        element.textContent = "This chart cannot be drawn: " + error.message;
        console.error(error);
      }
      root.dataset.drawn = drawn;
    }
    root.dataset.done = "true";
  };
  await draw();
  let width = innerWidth, waiting;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 200);
  });
})();
