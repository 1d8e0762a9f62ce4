// Prometheus' series as Grafana's data frames, with a panel's field options.
import { FieldType, getDisplayProcessor } from '@grafana/data';

// What Grafana's time series panel takes where a dashboard says nothing.
const CUSTOM = {
  axisBorderShow: false,
  axisCenteredZero: false,
  axisColorMode: 'text',
  axisLabel: '',
  axisPlacement: 'auto',
  barAlignment: 0,
  gradientMode: 'none',
  hideFrom: { legend: false, tooltip: false, viz: false },
  insertNulls: false,
  lineInterpolation: 'linear',
  pointSize: 5,
  scaleDistribution: { type: 'linear' },
  thresholdsStyle: { mode: 'off' },
};

// What the dashboard says of single fields, by their names.
function overridden(overrides, name) {
  const concerning = overrides.filter(({ matcher }) => matcher.id === 'byName' && matcher.options === name);
  return Object.fromEntries(concerning.flatMap(({ properties }) => properties.map(({ id, value }) => [id, value])));
}

export function frames(panel, answered, theme) {
  const { custom, ...defaults } = panel.fieldConfig.defaults;
  const mode = panel.type === 'stat' ? 'thresholds' : 'palette-classic';
  let seriesIndex = 0;
  const framesOf = ({ times, series }) =>
    series.map(({ name, labels, values }) => {
      const config = { color: { mode }, ...defaults, custom: { ...CUSTOM, ...custom }, displayNameFromDS: name };
      Object.assign(config, overridden(panel.fieldConfig.overrides, name));
      const state = { seriesIndex: seriesIndex++ };
      const field = { name: 'Value', type: FieldType.number, labels, config, values, state };
      field.display = getDisplayProcessor({ field, theme });
      const time = { name: 'Time', type: FieldType.time, config: {}, values: times.map((time) => time * 1000) };
      time.display = getDisplayProcessor({ field: time, theme });
      return { name, fields: [time, field], length: times.length };
    });
  return answered.flatMap(framesOf);
}
