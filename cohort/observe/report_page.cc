#include "cohort/observe/report_page.h"

namespace cohort::observe {

// Colours of the series keep apart for colour-blind readers too (blue, orange, teal, magenta, ochre, slate), on white and on black.
extern const std::string_view kReportStyle = R"css(
:root { color-scheme: light dark;
  --back: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5c6878; --rule: #dfe4ea; --grid: #e9edf1;
  --c0: #1f6fd6; --c1: #d9680b; --c2: #0f8a72; --c3: #b0329a; --c4: #a98100; --c5: #596b80;
  --compute: #1f6fd6; --communicate: #b8660a; --wait: #c04444; --other: #748091; }
@media (prefers-color-scheme: dark) { :root {
  --back: #12161c; --card: #1b212a; --ink: #e6ebf2; --soft: #9aa7b8; --rule: #2e3744; --grid: #28303b;
  --c0: #6aa9ff; --c1: #ffa657; --c2: #4fcfae; --c3: #e487d6; --c4: #dcc04d; --c5: #a5b3c5;
  --compute: #2f74cf; --communicate: #a8650f; --wait: #b54a4a; --other: #5d6978; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main, header { max-width: 1240px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 32px; }
main { padding-bottom: 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 12px; }
h3 { font-size: 14px; margin: 0; font-weight: 600; }
.subtitle { color: var(--soft); margin: 4px 0 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 16px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 22px; }
.tile { min-width: 150px; flex: 1 1 150px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 16px; }
figure { margin: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 2px 16px; align-items: baseline; margin-bottom: 6px; }
.key { font-size: 13px; color: var(--soft); font-variant-numeric: tabular-nums; white-space: nowrap; }
.key i { display: inline-block; width: 12px; height: 3px; border-radius: 2px; vertical-align: middle; margin-right: 6px; }
.key b { color: var(--ink); font-weight: 600; }
.plot { position: relative; }
svg { display: block; width: 100%; height: auto; overflow: visible; touch-action: pan-y; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.range { stroke-width: 1; opacity: 0.35; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); }
.b0 { background: var(--c0); } .b1 { background: var(--c1); } .b2 { background: var(--c2); } .b3 { background: var(--c3); } .b4 { background: var(--c4); } .b5 { background: var(--c5); }
.grid { stroke: var(--grid); } .axis, .mark { stroke: var(--rule); }
.tick, .name, .none { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.none { font-size: 14px; }
.cross { stroke: var(--soft); stroke-dasharray: 3 3; }
.dot { fill: var(--card); stroke-width: 2; }
.tip { position: absolute; top: 6px; pointer-events: none; background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 5px 9px;
  font-size: 12px; line-height: 1.45; white-space: nowrap; font-variant-numeric: tabular-nums; box-shadow: 0 2px 8px rgb(0 0 0 / 0.14); }
.tip i { display: inline-block; width: 8px; height: 8px; border-radius: 4px; margin-right: 6px; }
.tip div:first-child { color: var(--soft); }
.switch { position: absolute; opacity: 0; }
.choice { display: inline-flex; float: right; border: 1px solid var(--rule); border-radius: 7px; overflow: hidden; font-size: 13px; font-weight: 400; }
.choice label { padding: 2px 12px; cursor: pointer; color: var(--soft); }
#by-step:checked ~ main label[for=by-step], #by-wall:checked ~ main label[for=by-wall] { background: var(--c0); color: var(--card); }
#by-step:focus-visible ~ main label[for=by-step], #by-wall:focus-visible ~ main label[for=by-wall] { outline: 2px solid var(--ink); outline-offset: -2px; }
#by-step:checked ~ main .both .by-wall, #by-wall:checked ~ main .both .by-step { display: none; }
.bars { display: grid; grid-template-columns: max-content 1fr; gap: 7px 14px; align-items: center; max-height: 560px; overflow: auto; }
.bars .of { font-size: 13px; color: var(--soft); font-variant-numeric: tabular-nums; }
.bar { display: flex; gap: 2px; height: 22px; border-radius: 5px; overflow: hidden; }
.bar div { min-width: 0; overflow: hidden; color: #fff; font-size: 12px; line-height: 22px; text-align: center; font-variant-numeric: tabular-nums; }
.compute { background: var(--compute); } .communicate { background: var(--communicate); } .wait { background: var(--wait); } .other { background: var(--other); }
.keys { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-bottom: 12px; }
.keys i { height: 12px; border-radius: 3px; }
.scroll { overflow: auto; max-height: 560px; width: fit-content; max-width: 100%; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; vertical-align: bottom; position: sticky; top: 0; background: var(--card); }
th small { display: block; font-weight: 400; color: var(--soft); }
tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child { padding-left: 2px; }
.left { text-align: left; }
details > summary { cursor: pointer; color: var(--soft); }
pre { margin: 10px 0 0; font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow: auto; }
footer { color: var(--soft); font-size: 13px; margin-top: 36px; }
@media print { body { background: #fff; } .choice { display: none; } .card { break-inside: avoid; } }
)css";

// Values under the pointer. Reads the numbers beside each drawing; names go in as text, never as mark-up.
extern const std::string_view kReportScript = R"js(
'use strict';
const make = (tag, attributes, parent) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return parent.appendChild(node);
};
const share = (axis, v) => axis.log ? Math.log(v / axis.low) / Math.log(axis.high / axis.low) : (v - axis.low) / (axis.high - axis.low);
const place = (axis, v) => axis.from + share(axis, v) * (axis.to - axis.from);
const shown = v => Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(3) : String(Number(v.toPrecision(5)));
const nearest = (xs, x) => {
  let low = 0, high = xs.length - 1;
  while (low < high) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle + 1; else high = middle; }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
};
for (const plot of document.querySelectorAll('.plot')) {
  const svg = plot.querySelector('svg'), data = JSON.parse(plot.querySelector('script').textContent);
  let layer = null, tip = null;
  const hide = () => { if (layer) { layer.remove(); tip.remove(); layer = tip = null; } };
  const row = (text, color) => {
    const line = tip.appendChild(document.createElement('div'));
    if (color !== null) line.appendChild(document.createElement('i')).className = 'b' + color;
    line.appendChild(document.createTextNode(text));
  };
  const show = event => {
    hide();
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const x = data.x.low + (at - data.x.from) / (data.x.to - data.x.from) * (data.x.high - data.x.low);
    const near = data.series.map(s => s.x.length ? nearest(s.x, x) : -1);
    const first = near.findIndex(i => i >= 0);
    if (first < 0 || at < data.x.from - 8 || at > data.x.to + 8) return;
    const center = data.series.map((s, k) => near[k] >= 0 ? s.x[near[k]] : NaN).reduce((a, b) => Math.abs(b - x) < Math.abs(a - x) || isNaN(a) ? b : a);
    layer = make('g', {}, svg);
    tip = plot.appendChild(document.createElement('div'));
    tip.className = 'tip';
    make('line', { class: 'cross', x1: place(data.x, center), x2: place(data.x, center), y1: data.y.from, y2: data.y.to }, layer);
    row(data.xName + ' ' + shown(center), null);
    data.series.forEach((s, k) => {
      const y = near[k] < 0 ? null : s.y[near[k]];
      if (y === null || (data.y.log && y <= 0)) return;
      make('circle', { class: 'dot s' + k % 6, cx: place(data.x, s.x[near[k]]), cy: place(data.y, y), r: 4 }, layer);
      row(s.name + ' ' + shown(y), k % 6);
    });
    const left = place(data.x, center) / svg.viewBox.baseVal.width * box.width;
    tip.style.left = (left + 12 + tip.offsetWidth > box.width ? Math.max(0, left - 12 - tip.offsetWidth) : left + 12) + 'px';
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', hide);
}
)js";

}  // namespace cohort::observe
