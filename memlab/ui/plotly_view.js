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

// JupyterLab can make two models of one widget; only the one that it finds by the address is told of changes.
const LOOK_AGAIN_MS = 1000;

function render({ model: first, el }) {
  let model = first;
  const plot = document.createElement("div");
  el.append(plot);
  let asked = false;
  let open = true;
  const draw = async () => {
    const Plotly = await plotly();
    asked = false; // what comes from here on asks again
    if (!open || el.clientWidth === 0) return;
    const traces = model.get("traces").map((trace) => ({ ...trace, x: numbers(trace.x), y: numbers(trace.y) }));
    const look = structuredClone(model.get("look"));
    await Plotly.react(plot, traces, { ...look, width: el.clientWidth }, CONFIG);
  };
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(draw);
  };
  const sizes = new ResizeObserver(soon);
  sizes.observe(el);
  const listen = () => ["change:traces", "change:look"].forEach((change) => model.on(change, soon));
  const unlisten = () => ["change:traces", "change:look"].forEach((change) => model.off(change, soon));
  const lookAgain = async () => {
    const heard = await first.widget_manager.get_model(first.get("address"));
    if (!open || heard === model || heard.get("traces") === model.get("traces")) return;
    unlisten();
    model = heard;
    listen();
    soon();
  };
  const again = setInterval(() => lookAgain().catch(() => {}), LOOK_AGAIN_MS); // no manager: nothing to mend
  listen();
  soon();
  return async () => {
    open = false;
    clearInterval(again);
    sizes.disconnect();
    unlisten();
    (await plotly()).purge(plot);
  };
}

export default { render };
