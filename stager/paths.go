package main

import "kurma.io/stager/names"

// What this package uses of package names.
const (
	manifestPath  = names.Manifest
	layersDir     = names.LayersDir
	volumesDir    = names.VolumesDir
	cgroupDir     = names.CgroupDir
	journalSocket = names.JournalSocket
	resolvConf    = names.ResolvConf

	runDir          = names.RunDir
	privateDir      = names.PrivateDir
	logDir          = names.LogDir
	scratchDir      = names.ScratchDir
	notifyDir       = names.NotifyDir
	emptyVolumesDir = names.EmptyVolumesDir
	notifyPath      = names.NotifySocket
	appsCgroup      = names.AppsCgroup

	readyDescriptor    = names.ReadyDescriptor
	oldReadyDescriptor = names.OldReadyDescriptor
	stdioPrefix        = names.StdioPrefix
	waiterVariable     = names.SupervisorVariable

	stdinAnnotation = names.StdinAnnotation
	ttyAnnotation   = names.TTYAnnotation
	executorName    = names.Executor
)

// stdioSuffixes are in the order of the descriptors 0, 1 and 2.
var stdioSuffixes = [3]string{names.StdinSuffix, names.StdoutSuffix, names.StderrSuffix} //nolint:gochecknoglobals // a table that is only read
