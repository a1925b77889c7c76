package boot

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// recorded returns steps that record what they do and push an undo that also records. The
// step called fails fails after it has pushed, and the step called stops stops the pod.
func recorded(stop context.CancelFunc, done *[]string, names ...string) []Step {
	var list []Step
	for _, name := range names {
		list = append(list, Step{name, func(_ context.Context, p *Pod) error {
			p.code = 7
			*done = append(*done, name)
			p.Undo(func() error {
				*done = append(*done, "undo "+name)
				if name == "sticks" {
					return errors.New("undo refused")
				}
				return nil
			})
			switch name {
			case "fails":
				return errors.New("step refused")
			case "stops":
				stop()
			case "fails of the stop":
				stop()
				return errors.New("stopped")
			}
			return nil
		}})
	}
	return list
}

func TestStepsAreUndoneBackwards(t *testing.T) {
	tests := map[string]struct {
		steps, want []string
		code        int
		err         string // that the error must hold, in this order, separated by "|"; "" for none
	}{
		"all":               {[]string{"a", "b"}, []string{"a", "b", "undo b", "undo a"}, 7, ""},
		"failure":           {[]string{"a", "fails", "b"}, []string{"a", "fails", "undo fails", "undo a"}, 1, "step refused"},
		"failure of undo":   {[]string{"sticks", "fails"}, []string{"sticks", "fails", "undo fails", "undo sticks"}, 1, "step refused|undo refused"},
		"stop":              {[]string{"a", "stops", "b"}, []string{"a", "stops", "undo stops", "undo a"}, 0, ""},
		"failure of a stop": {[]string{"a", "fails of the stop"}, []string{"a", "fails of the stop", "undo fails of the stop", "undo a"}, 0, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var done []string
			code, err := Run(ctx, Parts{Log: slog.New(slog.DiscardHandler)}, recorded(stop, &done, test.steps...))
			if code != test.code || !slices.Equal(done, test.want) {
				t.Errorf("code %d after %q, want %d after %q", code, done, test.code, test.want)
			}
			if (err == nil) != (test.err == "") {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			rest := "%!"
			if err != nil {
				rest = err.Error()
			}
			for _, word := range strings.Split(test.err, "|") {
				var found bool
				if _, rest, found = strings.Cut(rest, word); !found {
					t.Errorf("error %q does not have %q in its place", err, word)
				}
			}
		})
	}
}

func TestStepsOfAProductAreBetweenTheStandardOnes(t *testing.T) {
	name := func(steps []Step) (list []string) {
		for _, s := range steps {
			list = append(list, s.Name)
		}
		return list
	}
	all := Steps()
	steps := After(Without(all, "open journal", "limit network"), "prepare runtime", Step{Name: "own"}, Step{Name: "other"})
	got := strings.Join(name(steps), ", ")
	if !strings.Contains(got, "make user namespace, prepare runtime, own, other, make volumes") || len(steps) != len(all) {
		t.Error(got)
	}
	if !slices.Equal(name(all), name(Steps())) {
		t.Errorf("the steps that were passed have changed: %q", name(all))
	}
	for _, wrong := range []func(){func() { After(all, "prepare") }, func() { Without(all, "decide", "prepare") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("an unknown step is no error")
				}
			}()
			wrong()
		}()
	}
}
