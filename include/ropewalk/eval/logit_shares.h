// What each pair of dimensions adds to the scores of attention: position or meaning.
#pragma once

#include <string>
#include <vector>

namespace ropewalk {

// Of one layer. The score of query m and key n is a sum over components, c_i(m, n): the rotated
// pairs i, in the scale of the scores, and what is not rotated as one more. Softmax ignores what
// all keys of a query share, so components are taken less their mean over the keys of each query
// and head. V_i is then the mean of c_i^2 over the heads that rotate, watched queries and
// distances, and shares are of V = sum of V_i, the unrotated component among them:
//   position[i] = (variance of c_i that head and distance alone explain) / V
//   content[i]  = (the rest: variance over queries at equal distance) / V
// The first is that of the means over the Q watched queries, less the 1/Q of the rest that chance
// puts there (the analysis of variance with one factor), so it may come out slightly below 0.
// Queries are compared at the distances that all of them have, without the first token, whose key
// is unlike all others. Biases and the soft cap are no part of it.
struct LogitShares {
  std::string absent = {};                          // why there are none, else empty
  std::vector<double> position = {}, content = {};  // [pairs]
  double unrotated = 0;
  // Whether the pair makes less than a full rotation within the trained length; [pairs]. Empty, as
  // `unseen` is, where that length is not known.
  std::vector<char> incomplete = {};
  // The part of V at distances where the pair stands at an angle that no distance within the
  // trained length has; angles between two whole distances count as seen. [pairs]
  std::vector<double> unseen = {};
  double by_distance = 0;  // the share of the variance of whole scores that the distance explains
  // Mean over heads and distances of a bin of what the distance explains of the scores (natural
  // logarithm of weight), all components; and that of the incomplete pairs alone. [bins]; NaN where
  // the queries have no distance in common.
  std::vector<double> score = {}, score_incomplete = {};
  int64_t distances = 0;  // compared: 0 .. distances - 1

  double Incomplete() const;          // shares of incomplete pairs, position and content
  double IncompletePosition() const;  // of these the position
  double Unseen() const;              // sum
  double Position() const;            // sum
};

}  // namespace ropewalk
