package plan

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// The first and the last real-time signal of programs: the C library keeps 32 and 33, the kernel's first two, for
// itself (signal(7)).
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// stopSignal returns the signal that asks an app to end, SIGTERM where nothing is said. The pod's annotation
// overrides the image's.
func stopSignal(app manifest.App) (syscall.Signal, error) {
	text, found := annotationOf(app, names.StopSignalAnnotation)
	if !found {
		return syscall.SIGTERM, nil
	}
	signal, ok := ParseSignal(text)
	if !ok {
		return 0, fmt.Errorf("annotation %s: %q: must be the name of a signal, such as SIGQUIT or SIGRTMIN+3, or its number",
			names.StopSignalAnnotation, text)
	}
	return signal, nil
}

// annotationOf returns an annotation of the app in the pod manifest, or else of its image.
func annotationOf(app manifest.App, name string) (string, bool) {
	text, found := app.Runtime.Annotations.Get(name)
	if !found && app.Image != nil {
		text, found = app.Image.Annotations.Get(name)
	}
	return text, found
}

// ParseSignal reads what the STOPSIGNAL of a container file may be: a number, or a name in any case with or without
// SIG. A real-time signal is SIGRTMIN or SIGRTMAX, or at a distance from one, such as SIGRTMIN+3. It reports whether
// the text is a signal's.
func ParseSignal(text string) (syscall.Signal, bool) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return syscall.Signal(n), 0 < n && n <= lastRealTime
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if signal := unix.SignalNum(name); signal != 0 {
		return signal, true
	}
	number := 0
	if distance, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
		number = firstRealTime + realTimeDistance(distance, "+")
	} else if distance, ok := strings.CutPrefix(name, "SIGRTMAX"); ok {
		number = lastRealTime - realTimeDistance(distance, "-")
	}
	return syscall.Signal(number), firstRealTime <= number && number <= lastRealTime
}

// realTimeDistance reads what follows SIGRTMIN or SIGRTMAX: nothing, or the sign and a number. For anything else it
// returns a distance that is too long.
func realTimeDistance(text, sign string) int {
	if text == "" {
		return 0
	}
	digits, ok := strings.CutPrefix(text, sign)
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil {
		return lastRealTime
	}
	return int(n)
}
