// Numbers for people who look before they run: what a set of frequencies can and cannot tell apart.
// Pure functions from frequencies to plain structs; nothing here runs a model.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

struct PairInfo {
  double frequency = 0;  // radians per position; 0: stands still
  double wavelength_tokens = std::numeric_limits<double>::infinity();  // 2 pi / frequency
  double trained_rotations = 0;  // full turns within the trained length, L f / 2 pi
  double target_rotations = 0;   // the same within the target length
  double unseen_share = 0;       // see UnseenShare
  int axis = 0;                  // which position turns it
};

// One row a pair. `trained` are the frequencies that the model saw in training (the plain ones
// where a scaling was added later), `now` those that will be used; lengths in tokens. Pairs that
// `trained` has and `now` lacks, or the other way, are an error.
std::vector<PairInfo> Pairs(const Frequencies& trained, int64_t trained_length,
                            const Frequencies& now, int64_t target_length);

// The frequencies of training: those of the spec without its extension. Scalings that stretch a
// trained model (linear, NTK, by-parts, YaRN, llama3, LongRoPE, divisors) are taken off; those that
// a model is trained with from the start (another base, HoPE, proportional) stay, without a factor.
Frequencies TrainedFrequencies(const RotarySpec& spec);

// How far the layers of one rotation look back, in tokens: the plan's length, or the widest window
// or chunk where every one of them has one. Distances from it on never occur.
int64_t Reach(const ResolvedPlan& plan, int rotation);

// The share of the distances 0 .. target_length - 1 at which a pair stands at an angle that no
// distance 0 .. trained_length - 1 reached. In training the pair swept the arc [0, A],
// A = f (L - 1); with A of a full turn or more every angle was met and the share is 0. Now it
// sweeps T = f' (length - 1) radians, of which those outside [0, A] modulo a turn were never met:
//   (floor(T / 2 pi) (2 pi - A) + max(0, T mod 2 pi - A)) / T.
// The angle is taken as continuous: gaps between the angles of whole positions inside a swept arc
// (Resonance RoPE, arXiv 2403.00071) count as met. This is the reasoning of section 3 of LongRoPE
// (arXiv 2402.13753) and of "Scaling Laws of RoPE" (arXiv 2310.05209), made a number.
double UnseenShare(double trained_frequency, int64_t trained_length, double frequency,
                   int64_t target_length);

struct CriticalDimension {
  int64_t first_pair = 0;  // the first pair that completes no turn within the length; pairs: none
  int64_t dimension = 0;   // 2 first_pair: d_extra of arXiv 2310.05209, eq. 10 for plain RoPE
  int64_t incomplete_pairs = 0;  // how many pairs complete no turn, wherever they stand
};
// "Scaling Laws of RoPE-based Extrapolation" (Liu et al. 2023, arXiv 2310.05209): dimensions from
// d_extra = 2 ceil(d/2 log_b(L / 2 pi)) on were never trained over a whole turn.
CriticalDimension Critical(const Frequencies& frequencies, int64_t length);

// Sum over pairs of cos(distance * f_i), to double precision at any distance below 2^31.
double CosineSum(const Frequencies& frequencies, int64_t distance);

// "Base of RoPE Bounds Context Length" (Men et al. 2024, arXiv 2405.14591, section 4): a key that
// resembles the query outscores a random one at distance m, on average, only where
// sum_i cos(m f_i) >= 0.
// The longest context these frequencies support: the largest L such that the sum is not negative at
// any distance m = 0 .. L. Stops at `limit`.
int64_t LongestContext(const Frequencies& frequencies, int64_t limit = int64_t{1} << 22);

struct BaseBound {
  int64_t context = 0;  // tokens
  double base = 0;      // the smallest base found whose plain frequencies support it
  double rounded = 0;   // the same rounded up, to print: four digits, or as many as support it
};
// Lower bounds on the base of plain RoPE for contexts 2^10, 2^11, ... below `context`, and
// `context` itself (1 .. 2^22). The search goes upwards in steps of kBaseStep and takes the first
// base that passes; each bound is right to that factor, except that a passing window narrower than
// it may be stepped over. Larger bases do not all pass: above the bound windows that fail follow
// (so coarser searches, the paper's among them, find larger values). Base LongestContext answers
// for one base.
inline constexpr double kBaseStep = 1.0001;
std::vector<BaseBound> BaseBounds(int64_t rotary_dim, int64_t context);

// How the expected score falls with distance.
struct DecayPoint {
  int64_t distance = 0;
  // RoFormer (arXiv 2104.09864) section 3.4.3: by Abel summation |score| is at most
  // max_i |h_{i+1} - h_i| times sum |S_j|, S_j = sum_{i<j} e^(i m f_i), h_i the product of pair i
  // of query and key. This is (2/d) sum_{j=1}^{d/2} |S_j|, the curve of the paper's figure 2.
  double bound = 0;
  // The exact mean score where all elements of q and k are drawn independently with one mean that
  // is not 0, relative to distance 0: (2/d) sum_i cos(m f_i). Amplitudes multiply it (squared).
  double expected = 0;
};
std::vector<DecayPoint> Decay(const Frequencies& frequencies,
                              const std::vector<int64_t>& distances);
// 0, 1, 2, 3, 4, 6, 8, ... up to `longest`: two an octave, and `longest` itself.
std::vector<int64_t> LogDistances(int64_t longest);

}  // namespace ropewalk
