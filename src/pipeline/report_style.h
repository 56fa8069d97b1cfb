// The style sheet of report.html: light and dark, for desks and phones.
#pragma once

namespace ebb {

inline constexpr const char* report_style = R"(
:root{color-scheme:light dark;--page:#f6f6f4;--card:#fff;--text:#1b1c1f;--soft:#6a6d75;
--rule:#e3e3df;--loss:#b9c8ee;--smooth:#1f5fd0;--held:#d9480f;--other:#0f8a6d;--good:#12805c;
--bad:#c2410c}
@media(prefers-color-scheme:dark){:root{--page:#121316;--card:#1b1d21;--text:#e7e7e4;
--soft:#9a9da6;--rule:#30333a;--loss:#4d629c;--smooth:#82aaff;--held:#ff9b5e;--other:#4fd1a8;
--good:#5fd3a3;--bad:#ff9b5e}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:2rem 1.25rem 3rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .35rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 .9rem}
header p{margin:.15rem 0;color:var(--soft)}header b{color:var(--text)}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;
padding:1.25rem;margin-top:1.25rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));gap:.6rem .4rem;
margin:1rem 0 0;padding:0}.facts dt{color:var(--soft);font-size:.8rem}
.facts dd{margin:0;font-weight:600;overflow-wrap:anywhere}
figure{margin:0}figcaption{color:var(--soft);font-size:.875rem;margin-top:.5rem}
img{display:block;max-width:100%;height:auto;border-radius:4px}
img.small{image-rendering:pixelated}
.samples{display:grid;grid-template-columns:auto minmax(0,max-content);gap:0 .8rem;
justify-content:start}
.samples ol{display:grid;grid-auto-rows:1fr;list-style:none;margin:0;padding:0;font-size:.9rem;
text-align:right;max-width:9rem}
.samples li{display:flex;align-items:center;justify-content:flex-end;min-height:0;
overflow:hidden;overflow-wrap:anywhere;line-height:1.15}
.samples figcaption{grid-column:1/-1}
.film{display:grid;gap:1.25rem;grid-template-columns:repeat(auto-fill,minmax(200px,1fr))}
.film img{width:100%}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.95rem}
th{font-weight:600;text-align:right;color:var(--soft);font-size:.85rem}
th,td{padding:.35rem 0 .35rem 1.5rem;border-bottom:1px solid var(--rule);vertical-align:top}
tr:last-child td{border-bottom:0}
td{text-align:right;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left;padding-left:0}
td.new{font-weight:600}td span{white-space:nowrap}.better{color:var(--good)}.worse{color:var(--bad)}
.note{color:var(--soft);font-size:.9rem;margin:.8rem 0 0}
.pair{display:grid;gap:1.5rem;grid-template-columns:repeat(auto-fit,minmax(min(16rem,100%),1fr));
margin-top:1.5rem}
.chart figcaption{display:flex;flex-wrap:wrap;gap:.1rem 1.25rem;margin:0 0 .4rem}
.chart figcaption>b{color:var(--text);margin-right:.5rem}
.chart svg{display:block;width:100%;height:auto;overflow:visible}
.chart text{fill:var(--soft);font-size:20px}.chart.large text{font-size:10px}
.grid{stroke:var(--rule)}
.line{fill:none;stroke-width:3;stroke-linejoin:round;stroke:currentColor}
.large .line{stroke-width:1.5}
.band{fill:currentColor;stroke:currentColor;stroke-width:1}.dot{fill:currentColor}
.loss{color:var(--loss)}.smooth{color:var(--smooth)}.held{color:var(--held)}
.other{color:var(--other)}.large .line.loss{stroke-width:1}
.key::before{content:"";display:inline-block;width:.85em;height:.85em;margin-right:.4em;
border-radius:3px;background:currentColor;vertical-align:-.08em}
.key{color:inherit}.key.loss::before{background:var(--loss)}
.key.smooth::before{background:var(--smooth)}.key.held::before{background:var(--held)}
.key.other::before{background:var(--other)}.key b{color:var(--text)}
.settings td{text-align:left}.settings td:first-child{white-space:nowrap}
.settings th{text-align:left}.usual{color:var(--soft)}
.settings td{overflow-wrap:anywhere}
details{margin-top:1rem}summary{cursor:pointer;color:var(--smooth)}
details h3{font-size:.95rem;margin:1rem 0 .3rem}
code,pre{font:.875em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{margin:0;overflow-x:auto;line-height:1.7}
footer{color:var(--soft);font-size:.85rem;margin-top:1.5rem}
@media(max-width:640px){main{padding:1.25rem .75rem 2rem}section{padding:1rem .85rem}
h1{font-size:1.5rem}.chart text{font-size:24px}.chart.large text{font-size:18px}
.large .line{stroke-width:2.5}
.samples{gap:0 .4rem}.samples ol{font-size:.65rem;max-width:4.5rem}
.facts{grid-template-columns:repeat(2,1fr)}
.film{grid-template-columns:repeat(2,minmax(0,1fr));gap:.75rem}
th,td{padding-left:.8rem}table{font-size:.875rem}}
@media print{section{break-inside:avoid}}
)";

}  // namespace ebb
