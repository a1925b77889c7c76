package main

import "time"

// many measures one start of pods of very many apps, and the memory of what looks after them.
func (b *benchmark) many() error {
	t := newTable("pods of many apps, one start each", "apps", "ready", "CPU an app", "MiB",
		"libcontainer: ready", "CPU an app", "MiB")
	for _, n := range []int{200, 800, 2000} {
		row := []any{n}
		for _, config := range []string{directConfig, libcontainerConfig} {
			p, err := b.daemon.start(n, config, "/bin/pause")
			if err != nil {
				return err
			}
			mib, err := p.memory()
			if err != nil {
				return err
			}
			row = append(row, p.start.wall, p.start.cpu/time.Duration(n), mib)
		}
		t.row(row...)
	}
	return t.end()
}
