// A heatmap of a histogram's buckets. Grafana does not publish its own panel: the plot, its axes and its scales are Grafana's, the cells are ours.
import { getValueFormat } from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleOrientation, UPlotChart, UPlotConfigBuilder } from '@grafana/ui';
import * as schemes from 'd3-scale-chromatic';

import { STEP } from './answers.js';

// Counts of each bucket alone, of Prometheus' cumulated ones, from the lowest bound up.
function buckets(series) {
  const bound = ({ labels }) => Number(labels.le.replace('+Inf', 'Infinity'));
  const sorted = [...series].sort((a, b) => bound(a) - bound(b));
  const alone = (values, below) => values.map((value, at) => (value === null ? null : value - (below?.[at] ?? 0)));
  return sorted.map((one, at) => ({ bound: bound(one), counts: alone(one.values, sorted[at - 1]?.values) }));
}

function text(bound, unit) {
  if (bound === Infinity) return '+Inf';
  const { text, suffix } = getValueFormat(unit)(bound);
  return `${text}${suffix ?? ''}`;
}

// As Grafana's, in the dark theme: few are dark, many are light.
function painter(rows, times, { color, filterValues }) {
  const most = Math.max(...rows.flatMap(({ counts }) => counts));
  const interpolate = schemes[`interpolate${color.scheme}`];
  return (plot) => {
    const pixels = devicePixelRatio;
    times.forEach((time, column) => {
      // Its cell would lie before the beginning.
      if (column === 0) return;
      const [left, right] = [time - STEP, time].map((at) => plot.valToPos(at * 1000, 'x', true));
      rows.forEach(({ counts }, row) => {
        if (!(counts[column] > filterValues.le)) return;
        const [top, bottom] = [row + 1, row].map((at) => plot.valToPos(at, 'y', true));
        plot.ctx.fillStyle = interpolate(1 - counts[column] / most);
        plot.ctx.fillRect(left, top, Math.max(right - left - pixels, pixels), bottom - top - pixels);
      });
    });
  };
}

export function Heatmap({ panel, answered, range, theme, width, height }) {
  const [{ times, series }] = answered;
  const rows = buckets(series);
  const builder = new UPlotConfigBuilder('utc');
  const x = { scaleKey: 'x', orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right, isTime: true };
  builder.addScale({ ...x, range: () => [range.from.valueOf(), range.to.valueOf()] });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: 'utc', theme });
  builder.addScale({ scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => [0, rows.length] });
  const every = Math.ceil(rows.length / 8);
  const splits = rows.map((_, at) => at + 1).filter((at) => at % every === 0);
  const names = (_, at) => at.map((split) => text(rows[split - 1].bound, panel.options.yAxis.unit));
  builder.addAxis({ scaleKey: 'y', placement: AxisPlacement.Left, theme, splits: () => splits, values: names, grid: { show: false } });
  builder.addSeries({ scaleKey: 'y', pathBuilder: () => null, showPoints: 'never', theme });
  builder.addHook('draw', painter(rows, times, panel.options));
  const data = [times.map((time) => time * 1000), times.map(() => 0)];
  return <UPlotChart config={builder} data={data} width={width} height={height} />;
}
