package supervisor

import (
	"os"
	"testing"
)

// The threads are there afterwards, and the Go runtime keeps them.
func TestThreadsAreReservedForTheStartsOfTheApps(t *testing.T) {
	for _, test := range []struct{ apps, want int }{{1, 10}, {50, 24}} {
		ReserveThreads(test.apps)
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		if len(threads) < test.want {
			t.Errorf("%d threads for %d apps, want %d", len(threads), test.apps, test.want)
		}
	}
}
