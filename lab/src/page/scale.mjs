// Where moments are: one scale for all worlds, on which quiet time is shortened.

/** A scale for these times, in milliseconds, over this many pixels. */
export function scale(times, width) {
  const moments = [...new Set([0, ...times])].sort((one, other) => one - other);
  moments.push(moments.at(-1) + 20);
  const ends = [0];
  for (let number = 1; number < moments.length; number += 1) {
    const gap = moments[number] - moments[number - 1];
    ends.push(ends[number - 1] + 1 + Math.log1p(gap / 20));
  }
  const unit = width / ends.at(-1);
  const between = (from, to, value) => {
    const last = from.length - 2;
    const part = Math.min(last, Math.max(0, above(from, value) - 1));
    const share = (value - from[part]) / (from[part + 1] - from[part]);
    return to[part] + Math.min(1, Math.max(0, share)) * (to[part + 1] - to[part]);
  };
  return {
    end: moments.at(-1),
    x: (time) => between(moments, ends, time) * unit,
    time: (x) => between(ends, moments, x / unit),
    /** Moments that are far enough apart for a label each, and those between two times. */
    ticks: (least) => spaced(moments.map((time, number) => [time, ends[number] * unit]), least),
    between: (from, to) => moments.slice(above(moments, from), Math.max(above(moments, to) - 1, above(moments, from))),
  };
}

/** How many of the sorted values are at most this one. */
export function above(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function spaced(points, least) {
  let last = -Infinity;
  return points.filter(([, x]) => x - last >= least && (last = x) === x);
}
