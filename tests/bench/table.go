package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// median of a list that is not empty; of two in the middle their mean.
func median[T time.Duration | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// collect takes n samples of each contestant, in rounds, so that a change of the
// machine's mood meets them all; each round begins with the next contestant.
func collect[T any](n int, contestants []func() (T, error)) ([][]T, error) {
	samples := make([][]T, len(contestants))
	for round := range n {
		for turn := range contestants {
			i := (round + turn) % len(contestants)
			value, err := contestants[i]()
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], value)
		}
	}
	return samples, nil
}

// A table is printed as one of Markdown with its columns aligned.
type table struct{ w *tabwriter.Writer }

func newTable(title string, columns ...any) *table {
	fmt.Printf("\n## %s\n\n", title)
	t := &table{w: tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)}
	t.row(columns...)
	t.row(slices.Repeat([]any{"---:"}, len(columns))...)
	return t
}

// row prints durations in milliseconds and other numbers with two decimals.
func (t *table) row(cells ...any) {
	fmt.Fprint(t.w, "\t")
	for _, cell := range cells {
		switch c := cell.(type) {
		case time.Duration:
			fmt.Fprintf(t.w, "%.1f ms\t", float64(c)/float64(time.Millisecond))
		case float64:
			fmt.Fprintf(t.w, "%.2f\t", c)
		default:
			fmt.Fprintf(t.w, "%v\t", c)
		}
	}
	fmt.Fprintln(t.w)
}

func (t *table) end() error { return t.w.Flush() }

// ratio of ours to theirs.
func ratio[T time.Duration | float64](ours, theirs T) float64 { return float64(ours) / float64(theirs) }

// spread is how a ratio was in the rounds of a run: its median, and its quartiles.
type spread struct{ lower, middle, upper float64 }

// ratios of ours to theirs, round by round.
func ratios[T time.Duration | float64](ours, theirs []T) spread {
	var all []float64
	for i := range ours {
		all = append(all, ratio(ours[i], theirs[i]))
	}
	slices.Sort(all)
	return spread{all[len(all)/4], median(all), all[(3*len(all))/4]}
}

func (s spread) String() string { return fmt.Sprintf("%.2f (%.2f-%.2f)", s.middle, s.lower, s.upper) }
