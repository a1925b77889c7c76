// Package exposition reads the text format of Prometheus strictly, for tests.
package exposition

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Parse returns the samples of a text by their names with labels. Each must be below the type of its metric, which
// occurs once.
func Parse(text string) (map[string]float64, error) {
	sample := regexp.MustCompile(
		`^(([a-z_]+?)(?:_bucket|_sum|_count)?(?:\{[a-z_]+="(?:[^"\\]|\\[\\n"])*"(?:,[a-z_]+="(?:[^"\\]|\\[\\n"])*")*\})?) ([0-9.e+-]+)$`)
	samples, types, of := make(map[string]float64), make(map[string]bool), ""
	for line := range strings.Lines(text) {
		line, whole := strings.CutSuffix(line, "\n")
		if rest, isType := strings.CutPrefix(line, "# TYPE "); isType {
			of, _, _ = strings.Cut(rest, " ")
			if types[of] {
				return nil, fmt.Errorf("%q has two types", of)
			}
			types[of] = true
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		words := sample.FindStringSubmatch(line)
		if words == nil || !whole || words[2] != of {
			return nil, fmt.Errorf("line %q below the type of %q", line, of)
		}
		if _, twice := samples[words[1]]; twice {
			return nil, fmt.Errorf("two samples %s", words[1])
		}
		value, err := strconv.ParseFloat(words[3], 64)
		if err != nil {
			return nil, err
		}
		samples[words[1]] = value
	}
	return samples, nil
}
