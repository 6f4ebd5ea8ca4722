// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::mm`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_mm)]
mod tests {
    use kernel::page::PAGE_SIZE;
    use kernel_ext::mm::{
        copy_racing,
        SharedArea, //
    };

    use super::*;

    #[test]
    fn length_is_whole_pages() -> Result {
        assert_eq!(SharedArea::new(1)?.len(), PAGE_SIZE);
        assert_eq!(SharedArea::new(PAGE_SIZE)?.len(), PAGE_SIZE);
        assert_eq!(SharedArea::new(PAGE_SIZE + 1)?.len(), 2 * PAGE_SIZE);
        assert_eq!(SharedArea::new(PAGE_SIZE + 1)?.asked(), PAGE_SIZE + 1);
        Ok(())
    }

    #[test]
    fn lengths_that_there_are_not() {
        assert_eq!(SharedArea::new(0).err(), Some(EINVAL));
        assert_eq!(SharedArea::new(usize::MAX).err(), Some(ENOMEM));
    }

    #[test]
    fn starts_with_zeroes() -> Result {
        let area = SharedArea::new(3 * PAGE_SIZE)?;
        for off in (0..area.len()).step_by(8) {
            assert_eq!(area.load_u64(off)?, 0);
        }
        Ok(())
    }

    #[test]
    fn words_are_little_endian() -> Result {
        let area = SharedArea::new(PAGE_SIZE)?;
        area.store_u64(8, 0x0102_0304_0506_0708)?;
        area.store_u32_release(16, 0x0a0b_0c0d)?;
        let mut bytes = [0; 12];
        area.read_bytes(8, &mut bytes)?;
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1, 0xd, 0xc, 0xb, 0xa]);
        area.write_bytes(24, &[1, 0, 0, 0, 2, 0, 0, 0])?;
        assert_eq!(area.load_u64_acquire(24)?, 0x2_0000_0001);
        assert_eq!(area.load_u32_acquire(28)?, 2);
        Ok(())
    }

    #[test]
    fn exchange() -> Result {
        let area = SharedArea::new(PAGE_SIZE)?;
        area.store_u64(8, 0x0102_0304_0506_0708)?;
        assert_eq!(area.exchange_u32(8, 0x0a0b_0c0d)?, 0x0506_0708);
        assert_eq!(area.load_u64(8)?, 0x0102_0304_0a0b_0c0d);
        for off in [2, PAGE_SIZE, usize::MAX] {
            assert_eq!(area.exchange_u32(off, 1), Err(EFAULT));
        }
        Ok(())
    }

    #[test]
    fn bytes_go_to_any_place() -> Result {
        let area = SharedArea::new(PAGE_SIZE)?;
        let data: [u8; 40] = core::array::from_fn(|index| index as u8 + 1);
        for off in 0..16 {
            for len in 0..data.len() {
                area.write_bytes(0, &[0; 80])?;
                area.write_bytes(off, &data[..len])?;
                let mut back = [0xff; 80];
                area.read_bytes(0, &mut back)?;
                assert!(back[..off].iter().all(|&byte| byte == 0));
                assert!(back[off..off + len] == data[..len]);
                assert!(back[off + len..].iter().all(|&byte| byte == 0));
            }
        }
        Ok(())
    }

    #[test]
    fn racing_copies_may_overlap() {
        for (to, from) in [(0, 5), (5, 0), (3, 3), (16, 32)] {
            let mut bytes: [u8; 64] = core::array::from_fn(|index| index as u8);
            let mut wanted = bytes;
            wanted.copy_within(from..from + 24, to);
            let start = bytes.as_mut_ptr();
            // SAFETY: Both places are inside of the array, which nobody else accesses.
            unsafe { copy_racing(start.add(to), start.add(from), 24) };
            assert!(bytes == wanted);
        }
    }

    #[test]
    fn nothing_outside_is_touched() -> Result {
        let area = SharedArea::new(PAGE_SIZE)?;
        let end = area.len();
        area.store_u64(end - 8, 1)?;
        assert_eq!(area.store_u64(end, 1), Err(EFAULT));
        assert_eq!(area.load_u64(end - 4), Err(EFAULT));
        assert_eq!(area.load_u32(usize::MAX - 3), Err(EFAULT));
        assert_eq!(area.write_bytes(end - 3, &[9; 4]), Err(EFAULT));
        assert_eq!(area.read_bytes(usize::MAX, &mut [0; 2]), Err(EFAULT));
        // A refused access is not done in part.
        assert_eq!(area.load_u64(end - 8)?, 1);
        area.write_bytes(end, &[])?;
        Ok(())
    }

    #[test]
    fn words_are_aligned() -> Result {
        let area = SharedArea::new(PAGE_SIZE)?;
        assert_eq!(area.load_u64(4), Err(EFAULT));
        assert_eq!(area.store_u32(2, 1), Err(EFAULT));
        assert_eq!(area.load_u32(4), Ok(0));
        Ok(())
    }

    #[test]
    fn pages_are_distinct() -> Result {
        let area = SharedArea::new(2 * PAGE_SIZE)?;
        assert!(area.page(0)? != area.page(1)?);
        assert!(!area.page(1)?.is_null());
        assert_eq!(area.page(2).err(), Some(EFAULT));
        assert_eq!(area.page(usize::MAX).err(), Some(EFAULT));
        Ok(())
    }
}
