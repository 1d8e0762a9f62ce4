// What a panel asks of Prometheus, with Grafana's variables filled in, and the answers.

// The scrape interval, and by Grafana's rule the interval of rates: the step and a scrape, four scrapes at the least.
export const STEP = 5;
const RATE = `${Math.max(STEP + STEP, 4 * STEP)}s`;

function filled(expression, seconds) {
  const values = { $__rate_interval: RATE, $__range: `${seconds}s`, $job: '.*', $instance: '.*' };
  return Object.entries(values).reduce((text, [variable, value]) => text.replaceAll(variable, value), expression);
}

async function ask(address, path, parameters) {
  const answer = await fetch(`http://${address}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const { status, data, error } = await answer.json();
  if (status !== 'success') throw new Error(`${parameters.query}: ${error}`);
  return data.result;
}

// A number for each step: NaN is Prometheus' word for none here, too.
function onGrid(values, times) {
  const known = new Map(values.map(([time, value]) => [time, Number(value)]));
  return times.map((time) => (Number.isFinite(known.get(time)) ? known.get(time) : null));
}

function legend(format, labels) {
  const named = format?.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
  return named || Object.values(labels)[0] || 'Value';
}

export async function answers(panel, { prometheus, from, to }) {
  const times = [];
  for (let time = from; time <= to; time += STEP) times.push(time);
  return Promise.all(
    (panel.targets ?? []).map(async ({ expr, instant, legendFormat }) => {
      const query = filled(expr, to - from);
      const found = instant
        ? (await ask(prometheus, 'query', { query, time: to })).map(({ metric, value }) => ({ metric, values: [value] }))
        : await ask(prometheus, 'query_range', { query, start: from, end: to, step: STEP });
      const at = instant ? [to] : times;
      const series = found.map(({ metric, values }) => ({ labels: metric, name: legend(legendFormat, metric), values: onGrid(values, at) }));
      return { times: at, series: series.filter(({ values }) => values.some((value) => value !== null)) };
    }),
  );
}
