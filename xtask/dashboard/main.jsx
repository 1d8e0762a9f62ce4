// The dashboard's own JSON, drawn with Grafana's published components and Prometheus' answers. `cargo xtask dashboard` bundles it, and puts
// `dashboard`, `prometheus` (an address), `from` and `to` (seconds) into `window.request`.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';

import { createTheme, dateTime } from '@grafana/data';
import { GlobalStyles, PanelChrome, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { answers } from './answers.js';
import { Heatmap } from './heatmap.jsx';
import { Series } from './series.jsx';
import { Stat } from './stat.jsx';

const COLUMNS = 24;
// Grafana's own, in pixels.
const ROW = 30;
const GAP = 8;
const WIDTH = window.innerWidth - 2 * GAP;

const KINDS = { stat: Stat, timeseries: Series, heatmap: Heatmap };

function place({ x, y, w, h }) {
  const column = (WIDTH + GAP) / COLUMNS;
  const box = { left: GAP + x * column, top: GAP + y * (ROW + GAP), width: w * column - GAP, height: h * (ROW + GAP) - GAP };
  return { ...box, position: 'absolute' };
}

function Panel({ panel, answered, range, theme }) {
  const style = place(panel.gridPos);
  if (panel.type === 'row') {
    return <div style={{ ...style, ...theme.typography.h5, lineHeight: `${ROW}px` }}>⌄ {panel.title}</div>;
  }
  const Kind = KINDS[panel.type];
  return (
    <div style={style}>
      <PanelChrome title={panel.title} description={panel.description} width={style.width} height={style.height}>
        {(width, height) => <Kind {...{ panel, answered, range, theme, width, height }} />}
      </PanelChrome>
    </div>
  );
}

async function show({ dashboard, prometheus, from, to }) {
  const theme = createTheme({ colors: { mode: 'dark' } });
  const raw = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  const range = { ...raw, raw };
  const panels = dashboard.panels;
  const answered = await Promise.all(panels.map((panel) => answers(panel, { prometheus, from, to })));
  const empty = panels.filter((panel, at) => panel.type !== 'row' && !answered[at].some((answer) => answer.series.length > 0));
  const bottom = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  createRoot(document.getElementById('dashboard')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ height: bottom * (ROW + GAP) + GAP }}>
        {panels.map((panel, at) => (
          <Panel key={panel.id} panel={panel} answered={answered[at]} range={range} theme={theme} />
        ))}
      </div>
    </ThemeContext.Provider>,
  );
  window.drawn = empty.map((panel) => panel.title);
}

const fonts = [400, 500].map((weight) => document.fonts.load(`${weight} 12px Inter`));
const failed = (error) => {
  window.failed = String(error.stack ?? error);
};
// A canvas takes a font that is not there yet for one that never will be.
Promise.all(fonts).then(() => show(window.request)).catch(failed);
