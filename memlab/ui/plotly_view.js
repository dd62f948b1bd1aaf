// One chart. The kernel's traits hold all of it, so that a view made late or twice shows the same.

const CONFIG = { displayModeBar: false, responsive: false };

function numbers(value) {
  if (!(value instanceof DataView)) return value;
  return new Float64Array(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength));
}

function plotly() {
  if (globalThis.memlabPlotly === undefined) {
    const shared = {};
    shared.loaded = new Promise((resolve) => (shared.resolve = resolve));
    globalThis.memlabPlotly = shared;
  }
  return globalThis.memlabPlotly.loaded;
}

function render({ model, el }) {
  const plot = document.createElement("div");
  el.append(plot);
  let asked = false;
  let open = true;
  let told = false;
  const draw = async () => {
    const Plotly = await plotly();
    asked = false; // what comes from here on asks again
    if (!open || el.clientWidth === 0) return;
    const traces = model.get("traces").map((trace) => ({ ...trace, x: numbers(trace.x), y: numbers(trace.y) }));
    const look = structuredClone(model.get("look"));
    await Plotly.react(plot, traces, { ...look, width: el.clientWidth }, CONFIG);
    if (traces.length > 0 && !told) {
      told = true;
      model.send("drawn");
    }
  };
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(draw);
  };
  const sizes = new ResizeObserver(soon);
  sizes.observe(el);
  model.on("change:traces", soon);
  model.on("change:look", soon);
  soon();
  model.send("shown");
  return async () => {
    open = false;
    sizes.disconnect();
    model.off("change:traces", soon);
    model.off("change:look", soon);
    (await plotly()).purge(plot);
  };
}

export default { render };
