// c1000k: the memory of one more connection.
#ifndef SLUICE_EXAMPLES_C1000K_SLOPE_H_
#define SLUICE_EXAMPLES_C1000K_SLOPE_H_

#include <cstddef>
#include <optional>

namespace sluice::c1000k {

// The least-squares slope of y over x. What a process needs without any
// connection does not count, as it would in total / N.
class Slope {
 public:
  void Add(double x, double y) {
    // Means and centred sums are moved along (Welford's way): sums of squares
    // of byte counts would lose the digits that matter.
    ++n_;
    const double dx = x - mean_x_;
    mean_x_ += dx / static_cast<double>(n_);
    mean_y_ += (y - mean_y_) / static_cast<double>(n_);
    sxx_ += dx * (x - mean_x_);
    sxy_ += dx * (y - mean_y_);
  }

  size_t samples() const { return n_; }

  // nullopt with fewer than `at_least` samples, or without two different x.
  std::optional<double> value(size_t at_least = 2) const {
    if (n_ < at_least || sxx_ <= 0) return std::nullopt;
    return sxy_ / sxx_;
  }

 private:
  size_t n_ = 0;
  double mean_x_ = 0;
  double mean_y_ = 0;
  double sxx_ = 0;
  double sxy_ = 0;
};

}  // namespace sluice::c1000k

#endif  // SLUICE_EXAMPLES_C1000K_SLOPE_H_
