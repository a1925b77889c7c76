package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// The sizes of a plot, in pixels.
const (
	plotWidth  = 760
	plotLeft   = 190 // of the bars; the labels are before
	barHeight  = 14
	groupSpace = 12
	plotEnd    = 2.0 // the ratio at the right edge
)

// writePlot draws a row of each contest as bars: the times of the stager, by its two ways, and of runc, each divided by
// crun's. A bar that leaves the plot ends at its edge, with its number.
func writePlot(path string, contests []*contest) error {
	var body strings.Builder
	y := 30
	for _, c := range contests {
		title, _, _ := strings.Cut(c.title, ",")
		fmt.Fprintf(&body, "<text x='8' y='%d' font-weight='bold'>%s</text>\n", y+barHeight-3, title)
		y += barHeight + 6
		for _, row := range c.rows {
			y = drawRow(&body, y, fmt.Sprint(row.label, " ", c.of), row)
		}
	}
	one := xOf(1)
	text := fmt.Sprintf(`<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='12'>
<rect width='100%%' height='100%%' fill='white'/>
<text x='%d' y='16' text-anchor='middle'>crun = 1</text>
%s<line x1='%d' y1='20' x2='%d' y2='%d' stroke='black' stroke-dasharray='4 3'/>
</svg>
`, plotWidth, y, one, body.String(), one, one, y)
	return os.WriteFile(path, []byte(text), 0o644)
}

// drawRow draws the bars of a row below y, and returns where the next may begin.
func drawRow(body *strings.Builder, y int, label string, row contestRow) int {
	crun := row.times[3]
	fmt.Fprintf(body, "<text x='%d' y='%d' text-anchor='end'>%s</text>\n", plotLeft-8, y+2*barHeight-3, strings.TrimSpace(label))
	for i, bar := range []struct{ name, color string }{{"stager", "#1f77b4"}, {"libcontainer", "#9ecae1"}, {"runc", "#bbbbbb"}} {
		s := ratios(row.times[i], crun)
		fmt.Fprintf(body, "<rect x='%d' y='%d' width='%d' height='%d' fill='%s'/>\n",
			plotLeft, y, xOf(s.middle)-plotLeft, barHeight-2, bar.color)
		fmt.Fprintf(body, "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='black'/>\n",
			xOf(s.lower), y+barHeight/2-1, xOf(s.upper), y+barHeight/2-1)
		fmt.Fprintf(body, "<text x='%d' y='%d' font-size='11'>%s %.2f</text>\n", plotWidth-120, y+barHeight-4, bar.name, s.middle)
		y += barHeight
	}
	return y + groupSpace
}

func xOf(ratio float64) int {
	return plotLeft + int(math.Round(math.Min(ratio, plotEnd)/plotEnd*(plotWidth-130-plotLeft)))
}
