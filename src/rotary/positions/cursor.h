// Walks tokens of a batch in order and gives the position of each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

class PositionCursor {
 public:
  // Starts at token `index` of batch * tokens. The positions have been checked.
  PositionCursor(const Positions& positions, int64_t tokens, int64_t index)
      : positions_(positions),
        tokens_(tokens),
        axis_size_(positions.axes() == 1 ? positions.size() : positions.size() / positions.axes()),
        batch_(index / tokens),
        token_(index % tokens),
        index_(index) {
    if (positions.kind() == Positions::Kind::kPacked) {
      const int64_t* boundaries = static_cast<const int64_t*>(positions.data());
      sequence_ =
          std::upper_bound(boundaries, boundaries + positions.size(), index) - boundaries - 1;
    }
    Update();
  }

  int64_t batch() const { return batch_; }
  int64_t token() const { return token_; }
  int64_t position() const { return position_; }  // on axis 0
  int64_t position(int64_t axis) const {
    if (positions_.axes() == 1 || axis == 0) return position_;
    const int64_t at = axis * axis_size_ + At();
    return positions_.kind() == Positions::Kind::kEach32
               ? static_cast<const int32_t*>(positions_.data())[at]
               : static_cast<const int64_t*>(positions_.data())[at];
  }

  // There must be a next token.
  void Next() {
    ++index_;
    if (++token_ == tokens_) token_ = 0, ++batch_;
    Update();
  }

 private:
  void Update() {
    switch (positions_.kind()) {
      case Positions::Kind::kStart:
        position_ = positions_.start() + token_;
        return;
      case Positions::Kind::kEach32:
        position_ = static_cast<const int32_t*>(positions_.data())[At()];
        return;
      case Positions::Kind::kEach64:
        position_ = static_cast<const int64_t*>(positions_.data())[At()];
        return;
      case Positions::Kind::kStarts:
        position_ = static_cast<const int64_t*>(positions_.data())[batch_] + token_;
        return;
      case Positions::Kind::kLeftPadded:
        position_ =
            std::max<int64_t>(0, token_ - static_cast<const int64_t*>(positions_.data())[batch_]);
        return;
      case Positions::Kind::kPacked: {
        const int64_t* boundaries = static_cast<const int64_t*>(positions_.data());
        while (sequence_ + 2 < positions_.size() && boundaries[sequence_ + 1] <= index_) {
          ++sequence_;
        }
        position_ = index_ - boundaries[sequence_];
        return;
      }
    }
  }
  // Positions may be given once for all sequences of the batch.
  int64_t At() const { return axis_size_ == tokens_ ? token_ : index_; }

  Positions positions_;
  int64_t tokens_;
  int64_t axis_size_;  // entries of one axis
  int64_t batch_;
  int64_t token_;
  int64_t index_;
  int64_t position_ = 0;
  int64_t sequence_ = 0;
};

}  // namespace ropewalk::internal
