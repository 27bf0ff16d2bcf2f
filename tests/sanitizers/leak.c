/* Preloaded into the program, it leaks: what scripts/leaks.sh must find before it says that there is nothing to find. */
#include <stdlib.h>

__attribute__((constructor)) static void leak(void) {
  char* volatile lost = malloc(1234);
  *lost = 1;
  lost = NULL;
}
