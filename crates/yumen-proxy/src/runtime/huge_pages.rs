//! Huge pages for large tables, of which each request reads another part.
//!
//! Reads the memory map of the process; has no knowledge of the content. Runs only if `router.huge_pages` is on.

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::sys;

/// The system setting for transparent huge pages.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const PAGE_BYTES: usize = 2 << 20;
/// Minimum size of an area: below, the gain is small and a huge page stays allocated as a whole.
const AREA_BYTES_MIN: usize = 8 << 20;
/// Pause after each page: threads that access a page during its conversion wait for it.
const PAUSE: Duration = Duration::from_millis(1);

/// Moves the large anonymous memory areas of this process into huge pages. Returns their size in bytes; 0 if
/// the system setting is `never`.
pub fn collapse() -> io::Result<usize> {
    let setting = std::fs::read_to_string(SETTING)?;
    if setting.contains("[never]") {
        return Ok(0);
    }
    let mut bytes = 0;
    for area in large_areas(&std::fs::read_to_string("/proc/self/maps")?) {
        sys::prefer_huge_pages(area.clone())?;
        for start in area.step_by(PAGE_BYTES) {
            // Before Linux 6.1, or with fragmented memory, khugepaged converts the area later.
            let _ = sys::make_huge_page(start..start + PAGE_BYTES);
            bytes += PAGE_BYTES;
            std::thread::sleep(PAUSE);
        }
    }
    Ok(bytes)
}

/// Returns the whole huge pages of large, writable, anonymous areas in `maps`, the text of proc_pid_maps(5).
fn large_areas(maps: &str) -> Vec<Range<usize>> {
    let area = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        // Offset, device and inode precede the path.
        let (start, end) = words.next()?.split_once('-')?;
        let is_heap = words.next()? == "rw-p" && matches!(words.nth(3), None | Some("[heap]"));
        let start = usize::from_str_radix(start, 16).ok()?.next_multiple_of(PAGE_BYTES);
        let end = usize::from_str_radix(end, 16).ok()? / PAGE_BYTES * PAGE_BYTES;
        (is_heap && end.saturating_sub(start) >= AREA_BYTES_MIN).then_some(start..end)
    };
    maps.lines().filter_map(area).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_of_large_heap_areas_are_found() {
        let maps = "\
55d0c0000000-55d0c2000000 r-xp 00001000 fd:00 42 /usr/bin/yumen
55d0c3000000-55d0c5000000 rw-p 02000000 fd:00 42 /usr/bin/yumen
55d0d0100000-55d0d0d00000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
7f0000800000-7f0004000000 ---p 00000000 00:00 0
7f0010000000-7f0010200000 rw-p 00000000 00:00 0
7f0020001000-7f0020800000 rw-p 00000000 00:00 0
7ffe00000000-7ffe01000000 rw-p 00000000 00:00 0                          [stack]
not a line of it
";
        assert_eq!(
            large_areas(maps),
            [0x55d0_d020_0000..0x55d0_d0c0_0000, 0x7f00_0000_0000..0x7f00_0080_0000]
        );
    }

    #[test]
    fn memory_is_the_same_afterwards() {
        let bytes: Vec<u8> = (0..16 << 20).map(|at: u32| (at % 251) as u8).collect();
        let is_allowed = std::fs::read_to_string(SETTING).is_ok_and(|setting| !setting.contains("[never]"));
        let collapsed = collapse().unwrap_or(0);
        assert_eq!(collapsed >= AREA_BYTES_MIN, is_allowed, "{collapsed} bytes");
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }
}
