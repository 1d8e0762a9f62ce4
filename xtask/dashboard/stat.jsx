// A stat panel: the values beside each other.
import { getFieldDisplayName } from '@grafana/data';
import { BigValue } from '@grafana/ui';

import { frames } from './fields.js';

export function Stat({ panel, answered, theme, width, height }) {
  const shown = frames(panel, answered, theme);
  const { colorMode, graphMode, justifyMode, textMode } = panel.options;
  return (
    <div style={{ display: 'flex' }}>
      {shown.map((frame, at) => {
        const field = frame.fields[1];
        const value = { ...field.display(field.values[0]), title: getFieldDisplayName(field, frame, shown) };
        const mode = textMode === 'auto' && shown.length > 1 ? 'value_and_name' : textMode;
        const options = { colorMode, graphMode, justifyMode, textMode: mode };
        return <BigValue key={at} {...options} value={value} theme={theme} width={width / shown.length} height={height} />;
      })}
    </div>
  );
}
