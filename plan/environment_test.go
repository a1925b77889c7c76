package plan

import (
	"strings"
	"testing"
)

// The names of variables that an app section may have are those of appc's schema.
func TestVariableNames(t *testing.T) {
	for _, name := range strings.Fields("A a _ Z9 a.b-c_d _. zZ-9") {
		if !IsVariableName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "9", ".a", "-", "a b", "a\n", "a=", "a%", "\u00e4", "a\u00e4", "a\x00"} {
		if IsVariableName(name) {
			t.Errorf("%q is allowed", name)
		}
	}
}
