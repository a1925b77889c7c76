package poll

import (
	"testing"
	"time"
)

func TestUntilReturnsWhenTheConditionHolds(t *testing.T) {
	looks := 0
	if !Until(time.Minute, time.Microsecond, func() bool { looks++; return looks == 3 }) || looks != 3 {
		t.Errorf("%d looks, want 3", looks)
	}
}

func TestUntilGivesUpAfterTheLimit(t *testing.T) {
	looks := 0
	if Until(0, time.Microsecond, func() bool { looks++; return false }) || looks == 0 {
		t.Errorf("the condition held after %d looks", looks)
	}
}
