package main

import "time"

// A contest is a table of the stager's two ways beside runc and crun.
type contest struct {
	title, of string
	rows      []contestRow
}

// contestRow is the samples of the stager, of the stager with libcontainer, of runc and of crun.
type contestRow struct {
	label any
	times [4][]time.Duration
}

func newContest(title, of string) *contest { return &contest{title: title, of: of} }

// add adds a row; pick takes the figure of the contest from samples.
func (c *contest) add(label any, samples [][]cost, pick func([]cost) []time.Duration) {
	row := contestRow{label: label}
	for i, list := range samples {
		row.times[i] = pick(list)
	}
	c.rows = append(c.rows, row)
}

// print prints a contest, and keeps it for the plot.
func (b *benchmark) print(c *contest) error {
	b.contests = append(b.contests, c)
	return c.print()
}

func (c *contest) print() error {
	t := newTable(c.title, c.of, "stager", "libcontainer", "runc", "crun",
		"stager/libcontainer", "stager/runc", "stager/crun", "libcontainer/crun")
	for _, row := range c.rows {
		ours, slow, runc, crun := row.times[0], row.times[1], row.times[2], row.times[3]
		t.row(row.label, median(ours), median(slow), median(runc), median(crun),
			ratios(ours, slow), ratios(ours, runc), ratios(ours, crun), ratios(slow, crun))
	}
	return t.end()
}

// printFurther prints what an app more costs, by the rows of the fewest and of the most apps.
func (c *contest) printFurther(apps []int) error {
	first, last := c.rows[0], c.rows[len(c.rows)-1]
	more := apps[len(apps)-1] - apps[0]
	t := newTable("CPU time of each further app", "", "stager", "libcontainer", "runc", "crun", "stager/crun")
	cells := []any{""}
	for i := range first.times {
		cells = append(cells, (median(last.times[i])-median(first.times[i]))/time.Duration(more))
	}
	ours, crun := cells[1].(time.Duration), cells[4].(time.Duration)
	t.row(append(cells, ratio(ours, crun))...)
	return t.end()
}
