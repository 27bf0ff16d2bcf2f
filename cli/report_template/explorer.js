"use strict";
// The formulas of the explorer, in double precision: what include/ropewalk/rotary/spec.h and
// include/ropewalk/analysis/analysis.h define, for any base, factor and head size.
// scripts/check_report.sh compares them with the program's own numbers.
const Explorer = (() => {
const TURN = 2 * Math.PI;
const clamp01 = (x) => Math.min(1, Math.max(0, x));
const blend = (a, b, t) => (1 - t) * a + t * b;
const plain = (s, i) => s.base ** (-2 * i / s.dim);
const ntk = (s, i, factor) => (s.base * factor ** (s.dim / (s.dim - 2))) ** (-2 * i / s.dim);
// The pair index at which this many rotations fit into the trained length.
const pairOfRotations = (s, rotations) => s.dim * Math.log(s.trained / (rotations * TURN)) / (2 * Math.log(s.base));
// YaRN's ramp: 1 up to `fast` rotations, 0 from `slow` on, over pair indices rounded outwards.
function kept(s, i, fast, slow) {
  const low = Math.max(0, Math.floor(pairOfRotations(s, fast)));
  let high = Math.min(s.dim - 1, Math.ceil(pairOfRotations(s, slow)));
  if (low === high) high += 0.001;
  return 1 - clamp01((i - low) / (high - low));
}
// The ramp over rotations of the YaRN paper and of llama3.
const overRotations = (s, i, low, high) => clamp01((s.trained * plain(s, i) / TURN - low) / (high - low));

// spec: {base, dim, factor, trained, length}; each gives the frequency of pair i
// and the attention factor (amplitude). The page offers only these methods.
const one = () => 1;
const yarnAmplitude = (s) => (s.factor > 1 ? 0.1 * Math.log(s.factor) + 1 : 1);
const METHODS = {
  "none": {amplitude: one, frequency: (s, i) => plain(s, i)},
  "linear": {amplitude: one, frequency: (s, i) => plain(s, i) / s.factor},
  "ntk": {amplitude: one, frequency: (s, i) => ntk(s, i, s.factor)},
  "ntk-fixed": {amplitude: one, frequency: (s, i) => plain(s, i) * s.factor ** (-2 * (i + 1) / s.dim)},
  "ntk-mixed": {amplitude: one, frequency: (s, i) => plain(s, i) * Math.exp(-Math.log(s.factor) / (s.dim / 2) ** 0.75 * (i + 1) ** 0.75)},
  "dynamic": {amplitude: one, frequency: (s, i) => ntk(s, i, s.length > s.trained ? s.factor * s.length / s.trained - (s.factor - 1) : 1)},
  "by-parts": {amplitude: one, frequency: (s, i) => blend(plain(s, i) / s.factor, plain(s, i), overRotations(s, i, 1, 32))},
  "by-parts-repo": {amplitude: one, frequency: (s, i) => blend(blend(plain(s, i) / s.factor, ntk(s, i, s.factor), kept(s, i, 1.25, 0.75)),
                                   plain(s, i), kept(s, i, 16, 2))},
  "yarn": {amplitude: yarnAmplitude, frequency: (s, i) => blend(plain(s, i) / s.factor, plain(s, i), kept(s, i, 32, 1))},
  "llama3": {amplitude: one, frequency: (s, i) => blend(plain(s, i) / s.factor, plain(s, i), overRotations(s, i, 1, 4))},
  "hope": {amplitude: one, frequency: (s, i) => (s.trained * plain(s, i) / TURN < 1 ? 0 : plain(s, i))},
};
const frequencies = (method, spec) => Array.from({length: spec.dim / 2}, (_, i) => METHODS[method].frequency(spec, i));
const amplitude = (method, spec) => METHODS[method].amplitude(spec);

function unseenShare(trainedFrequency, trained, frequency, length) {
  const seen = trainedFrequency * (trained - 1), swept = frequency * (length - 1);
  if (seen >= TURN || swept <= seen) return 0;
  const whole = Math.floor(swept / TURN);
  return (whole * (TURN - seen) + Math.max(0, swept - whole * TURN - seen)) / swept;
}
const incompletePairs = (f, length) => f.filter((x) => x * length / TURN < 1).length;
const expected = (f, distance) => f.reduce((sum, x) => sum + Math.cos(distance * x), 0) / f.length;
function bound(f, distance) {
  let re = 0, im = 0, sum = 0;
  for (const x of f) {
    re += Math.cos(distance * x); im += Math.sin(distance * x);
    sum += Math.hypot(re, im);
  }
  return sum / f.length;
}
// The largest distance up to which the sum of cosines is never negative; cos((m + 1) x) follows from the two before.
function longestContext(f, limit) {
  const twice = f.map((x) => 2 * Math.cos(x));
  const now = new Float64Array(f.length), before = new Float64Array(f.length);
  for (let m = 1; m <= limit; ++m) {
    if (m % 256 === 1) f.forEach((x, i) => { now[i] = Math.cos(m * x); before[i] = Math.cos((m - 1) * x); });
    let sum = 0;
    for (let i = 0; i < f.length; ++i) {
      const c = now[i];
      sum += c;
      now[i] = twice[i] * c - before[i];
      before[i] = c;
    }
    if (sum < 0) return m - 1;
  }
  return limit;
}
return {methods: Object.keys(METHODS), frequencies, amplitude, unseenShare, incompletePairs, expected, bound,
        longestContext};
})();
