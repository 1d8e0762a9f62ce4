// A time series panel.
import { TimeSeries } from '@grafana/ui';

import { frames } from './fields.js';

export function Series({ panel, answered, range, theme, width, height }) {
  const data = frames(panel, answered, theme);
  if (data.length === 0) {
    const text = panel.fieldConfig.defaults.noValue ?? 'No data';
    return <div style={{ textAlign: 'center', paddingTop: height / 2 - 10 }}>{text}</div>;
  }
  const legend = { calcs: [], ...panel.options.legend };
  return <TimeSeries frames={data} legend={legend} timeRange={range} timeZone="utc" width={width} height={height} structureRev={1} />;
}
