package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// lineCount lines of 100 bytes are written.
const lineCount = 1_000_000

// logConfig prevents the stager from rotating logs: conmon would not either.
const logConfig = `{"log": {"maxSize": "1Gi", "maxFiles": 2}}`

// A logged is one measured flood of lines.
type logged struct {
	took time.Duration // from the first write to the last line in the log file
	cpu  time.Duration // of the logger
}

// logs measures 1,000,000 lines of 100 bytes, in single lines and in blocks of
// 4 KiB, until the last line is in the log, and the CPU time of the process that
// reads and writes them: the supervisor, and conmon.
func (b *benchmark) logs() error {
	t := newTable("1,000,000 log lines of 100 bytes, medians of "+fmt.Sprint(b.runs),
		"a write is", "stager MB/s", "conmon MB/s", "stager/conmon", "stager CPU", "conmon CPU", "stager/conmon")
	for _, size := range []int{100, 4096} {
		samples, err := collect(b.runs, []func() (logged, error){
			func() (logged, error) { return b.floodStager(size) },
			func() (logged, error) { return b.floodConmon(size) },
		})
		if err != nil {
			return err
		}
		speed, cpu := make([]float64, 2), make([]time.Duration, 2)
		for i, list := range samples {
			var took, cpus []time.Duration
			for _, sample := range list {
				took, cpus = append(took, sample.took), append(cpus, sample.cpu)
			}
			speed[i], cpu[i] = lineCount*100/1e6/median(took).Seconds(), median(cpus)
		}
		t.row(fmt.Sprintf("%d bytes", size), speed[0], speed[1], ratio(speed[0], speed[1]), cpu[0], cpu[1], ratio(cpu[0], cpu[1]))
	}
	return t.end()
}

func (b *benchmark) floodStager(size int) (result logged, err error) {
	p, err := b.daemon.start(1, logConfig, "/bin/writer", strconv.Itoa(lineCount), strconv.Itoa(size))
	if err != nil {
		return logged{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	writer, err := find(p.cmd.Process.Pid, "writer")
	if err != nil {
		return logged{}, err
	}
	return flood(writer, p.cmd.Process.Pid, filepath.Join(p.root, p.image.LogDir, "app0"))
}

func (b *benchmark) floodConmon(size int) (result logged, err error) {
	m, err := b.runc.monitor("/bin/writer", strconv.Itoa(lineCount), strconv.Itoa(size))
	if err != nil {
		return logged{}, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	writer, err := find(m.cmd.Process.Pid, "writer")
	if err != nil {
		return logged{}, err
	}
	return flood(writer, m.cmd.Process.Pid, m.logDir)
}

// flood lets the writer go and waits for its last line in the log.
func flood(writer, logger int, logDir string) (logged, error) {
	if err := awaitSigwait(writer); err != nil {
		return logged{}, err
	}
	before, err := cpuTime(logger)
	if err != nil {
		return logged{}, err
	}
	begin := time.Now()
	if err := unix.Kill(writer, unix.SIGUSR1); err != nil {
		return logged{}, fmt.Errorf("let the writer go: %w", err)
	}
	if !poll.Until(time.Minute, 500*time.Microsecond, func() bool { return logEnds(logDir) }) {
		return logged{}, fmt.Errorf("wait for the last line in %s: it did not come within a minute", logDir)
	}
	took := time.Since(begin)
	after, err := cpuTime(logger)
	return logged{took: took, cpu: after - before}, err
}

// logEnds reports whether a log file in dir ends with the writer's last line.
func logEnds(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return false
	}
	for _, name := range files {
		if endsWith(name, "END\n") {
			return true
		}
	}
	return false
}

func endsWith(name, text string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() < int64(len(text)) {
		return false
	}
	tail := make([]byte, len(text))
	_, err = file.ReadAt(tail, info.Size()-int64(len(text)))
	return err == nil && string(tail) == text
}
