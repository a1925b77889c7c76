package callins

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAnErrorDecidesTheExitCode(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"success", nil, 0, ""},
		{"an error", errors.New("stager: no manifest"), 1, "stager: no manifest\n"},
		{"an app's exit code", &ExitError{Code: 7}, 7, ""},
		{"a call-in's error", &ExitError{Code: 125, Err: errors.New("run: no app")}, 125, "run: no app\n"},
		{"a wrapped one", fmt.Errorf("call: %w", &ExitError{Code: 3, Err: errors.New("run: no app")}), 3, "run: no app\n"},
	} {
		var text strings.Builder
		if code := ExitCode(test.err, &text); code != test.code || text.String() != test.text {
			t.Errorf("%s: exit code %d and text %q, want %d and %q", test.name, code, text.String(), test.code, test.text)
		}
	}
}
